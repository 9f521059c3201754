package faults

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// A stopped server runs the commands in its buffers when it continues, long after
// the callers got an error. Each call is charged at most once, and calls made while
// the breaker was open are not.
func TestFault04CallsToAPausedRedisAreChargedOnce(t *testing.T) {
	o := apart(t, "SIGSTOP, calls, SIGCONT")
	server := redistest.Start(t)

	// Without spare connections: they say HELLO before their first use, so a charge
	// cannot be in their buffers.
	options := server.Options()
	options.ContextTimeoutEnabled, options.MaxRetries = true, -1
	r := rigOn(t, closing(t, redis.NewClient(options)), config{DenialTTL: -1})
	// Or a test of the server's kind may have the one connection when it stops.
	redistest.Eventually(t, ample, "the server's kind", func() bool { return r.Ping(t.Context()) == nil })
	works(t, r)
	server.Pause()

	var late, resting atomic.Int64
	const bucket = 100_000
	for range 20 {
		redistest.Together(25, func(int) {
			switch _, err := o.take(r, daily("hit", bucket)); {
			case errors.Is(err, redisstore.ErrUnavailable):
				resting.Add(1)
			case err != nil:
				late.Add(1)
			default:
				t.Error("a stopped server answered")
			}
		})
	}

	server.Resume()
	// On each connection the buffered commands run before new ones; connections that
	// were closed are then gone from the list.
	o.recovers(t, r, probing)
	redistest.Eventually(t, ample, "the old connections to end", func() bool {
		return redistest.Stat(t, server.Client(), "clients", "connected_clients:") <= 8
	})
	charged := spent(t, r.witness(t, server.Client()), daily("hit", bucket))
	o.atMost(t, charged, late.Load(), fmt.Sprintf("500 calls on a stopped server, %d of them not even tried", resting.Load()))
	if charged == 0 || resting.Load() == 0 {
		t.Errorf("%d charged, %d not tried; want some of both", charged, resting.Load())
	}
	o.inTime(t, budget)
}
