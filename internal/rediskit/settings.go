package rediskit

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// HintSettings logs which settings of a client would save a lone caller time. There are none for a
// client that has them, and for several servers.
func HintSettings(log *diag.Log, client redis.UniversalClient, timeout time.Duration) {
	c, ok := client.(*redis.Client)
	if !ok || hasSettings(c, timeout) {
		return
	}
	log.Report(diag.RedisSettings, "", "two settings of the Redis client would save a call that is alone a fifth of its time",
		"server", c.Options().Addr, "ContextTimeoutEnabled", c.Options().ContextTimeoutEnabled, "PoolTimeout", c.Options().PoolTimeout,
		"hint", "set ContextTimeoutEnabled: true, and a PoolTimeout of at most the Timeout of the store, "+timeout.String())
}
