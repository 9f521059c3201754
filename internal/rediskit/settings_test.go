package rediskit

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
)

// limiter is a redis.Limiter, which may take as long as it likes.
type limiter struct{ redis.Limiter }

// Both settings are needed, and a line at level INFO says so for a client without one of them.
func TestBoundsCalls(t *testing.T) {
	const timeout = 50 * time.Millisecond
	for _, tt := range []struct {
		name         string
		client       redis.UniversalClient
		bounds, hint bool
	}{
		{"both settings", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, PoolTimeout: timeout}), true, false},
		{"both settings and no deadlines", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, PoolTimeout: timeout, ReadTimeout: -2}), false, false},
		{"both settings and OnConnect", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, PoolTimeout: timeout,
			OnConnect: func(context.Context, *redis.Conn) error { return nil }}), false, false},
		{"both settings and a Limiter", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, PoolTimeout: timeout, Limiter: limiter{}}), false, false},
		{"none", redis.NewClient(&redis.Options{}), false, true},
		{"no PoolTimeout", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true}), false, true},
		{"no ContextTimeoutEnabled", redis.NewClient(&redis.Options{PoolTimeout: timeout}), false, true},
		{"a longer PoolTimeout", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, PoolTimeout: timeout + 1}), false, true},
		{"a cluster", redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true, PoolTimeout: timeout}), false, false},
		{"a ring", redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true, PoolTimeout: timeout}), false, false},
		{"no client", nil, false, false},
	} {
		if got := BoundsCalls(tt.client, timeout); got != tt.bounds {
			t.Errorf("%s: BoundsCalls is %v; want %v", tt.name, got, tt.bounds)
		}
		var log diagtest.Log
		HintSettings(&diag.Log{Logger: log.Logger()}, tt.client, timeout)
		lines := log.Lines()
		if got := len(lines) == 1 && lines[0].Level == slog.LevelInfo && lines[0].Code() == diag.RedisSettings; got != tt.hint || len(lines) > 1 {
			t.Errorf("%s: got lines %v; want one at level INFO: %v", tt.name, lines, tt.hint)
		}

		if tt.client != nil {
			_ = tt.client.Close()
		}
	}
}
