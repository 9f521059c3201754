package slidinglog

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Ping checks the servers as Ping of redisstore.Store does, but tests neither their kind
// nor whether they evict keys.
func (r *Store) Ping(ctx context.Context) error {
	err := rediskit.Ping(ctx, r.client, r.prefix, func(ctx context.Context, server redis.UniversalClient, key string) error {
		o := op{params: params{per: time.Millisecond, count: 1000, cost: 1}, key: key}
		return (&Store{client: server}).take(ctx, &part{ops: []*op{&o}}, take, anyDelay)
	})
	if err != nil {
		return fmt.Errorf("slidinglog: %w", err)
	}
	return nil
}
