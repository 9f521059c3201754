package redisstore

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Config is the set-up of a [Store]. The zero value is the common choice.
type Config struct {
	// Prefix begins every key; "" means "rl:". It has no braces.
	Prefix string

	// Timeout is the longest that Take or Refund waits for Redis; 0 means 50 ms, otherwise it
	// is from 1 ms to 1 minute. After it they return an error that wraps
	// [context.DeadlineExceeded].
	Timeout time.Duration

	// DenialTTL is how long an earlier answer of Redis may deny requests, without a call; what
	// Local has granted may deny for longer. A refund or a reset in another process may be
	// noticed that much later. 0 means 1 s; otherwise it is at least 1 ms, or negative for no
	// such cache.
	DenialTTL time.Duration

	// Logger gets a line when a problem with Redis begins, and one when an outage that was
	// logged is over. Problems have an attribute code that docs/troubleshooting.md explains.
	// Nil means [slog.Default].
	Logger *slog.Logger
}

const defaultDenialTTL = time.Second

// check returns one error for each mistake.
func (c *Config) check() error {
	err := rediskit.CheckConfig("redisstore", c.Prefix, c.Timeout)
	if c.DenialTTL > 0 && c.DenialTTL < time.Millisecond {
		err = errors.Join(err, fmt.Errorf("redisstore: DenialTTL is %v; want 1ms or more, 0 (%v), or a negative one for no cache", c.DenialTTL, defaultDenialTTL))
	}
	return err
}
