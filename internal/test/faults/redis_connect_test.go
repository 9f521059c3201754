package faults

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Close ends calls in flight. They return, and
// later ones fail.
func TestFault96GracefulShutdown(t *testing.T) {
	o := fault(t, "Close with calls in flight, on a healthy and on a silent Redis")
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	before := held(t)

	for name, fail := range map[string]func(){"healthy": proxy.Pass, "slow": func() { proxy.Delay(50 * time.Millisecond) }, "silent": proxy.Blackhole, "gone": proxy.Refuse} {
		proxy.Pass()
		r := rigAt(t, "redis://"+proxy.Addr, config{})
		works(t, r)
		fail()

		var under atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			redistest.Together(30, func(i int) {
				under.Add(1)
				for range 5 {
					_, _ = o.take(r, plenty(fmt.Sprint(i))) // returns an answer or an error
				}
			})
		}()

		redistest.Eventually(t, ample, "calls to be in flight", func() bool { return under.Load() == 30 })
		if err := r.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}

		select {
		case <-done:
		case <-time.After(ample):
			t.Fatalf("%s: calls in flight at Close have not returned", name)
		}

		ctx, cancel := context.WithTimeout(t.Context(), ample)
		_, err := gcra.Take(ctx, r, plenty("late"))
		if cancel(); err == nil || errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			t.Errorf("%s: after Close: got %v; want an error at once", name, err)
		}
	}

	proxy.Pass()
	proxy.Reset()
	before.released(t, 2)
	o.inTime(t, budget)
}
