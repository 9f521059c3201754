package rediskit

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// SettingsLine returns a function that logs which settings of a client would save a lone caller time,
// or nil if there are none: for a client with [BoundsCalls], or for several servers.
func SettingsLine(log *diag.Log, client redis.UniversalClient, timeout time.Duration) func() {
	c, ok := client.(*redis.Client)
	if !ok || c == nil || BoundsCalls(client, timeout) {
		return nil
	}
	return log.Line(diag.RedisSettings, "", "two settings of the Redis client would halve the time of a call that is alone",
		"server", c.Options().Addr, "ContextTimeoutEnabled", c.Options().ContextTimeoutEnabled, "PoolTimeout", c.Options().PoolTimeout,
		"hint", "set ContextTimeoutEnabled: true, and a PoolTimeout of at most the Timeout of the store, "+timeout.String())
}
