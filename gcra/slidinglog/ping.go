package slidinglog

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Ping reports whether the store works, as Ping of package redisstore does: the error
// says what is wrong and what to do about it.
func (r *Redis) Ping(ctx context.Context) error {
	prefix, err := r.prefix()
	if err != nil {
		return err
	}
	err = rediskit.Ping(ctx, r.client, prefix, func(ctx context.Context, server redis.UniversalClient, key string) error {
		one := &Redis{client: server}
		f := fare{demand: demand{per: time.Millisecond, count: 1000, cost: 1}, key: key}
		return one.take(ctx, &part{fares: []*fare{&f}}, take, asLong)
	})
	if err != nil {
		return fmt.Errorf("slidinglog: %w", err)
	}
	return nil
}
