package middleware_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// A request is not held back beyond its deadline. It is denied at once and charged
// nothing, whether the store decides or, while it fails, this server.
func TestMaxDelayEndsWithTheDeadline(t *testing.T) {
	for _, fails := range []bool{false, true} {
		for _, test := range []struct {
			patience time.Duration
			allowed  bool
			wait     time.Duration
		}{
			{1500 * time.Millisecond, true, time.Second},
			{400 * time.Millisecond, false, 600 * time.Millisecond},
			{0, false, time.Second - time.Nanosecond},
		} {
			synctest.Test(t, func(t *testing.T) {
				store := &doubles.Store{Store: gcra.NewMemory()}
				l := limiter(t, middleware.Config{Store: store, Logger: unread},
					middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerSecond(1), MaxDelay: 2 * time.Second})
				if fails {
					store.Fail = 3
				}

				l.Decide(get("/"))
				ctx, cancel := context.WithTimeout(t.Context(), test.patience)
				defer cancel()
				d := l.Decide(get("/").WithContext(ctx))
				retryAfter := d.Results[0].RetryAfter

				if d.Allowed != test.allowed || (d.Delay+retryAfter-test.wait).Abs() > time.Microsecond {
					t.Errorf("store fails %t, %v until the deadline: got Allowed %t, delay %v, retry after %v; want %t, %v",
						fails, test.patience, d.Allowed, d.Delay, retryAfter, test.allowed, test.wait)
				}

				charged := time.Duration(0)
				if test.allowed {
					charged = time.Second
				}

				if d := l.Decide(get("/")); d.Delay != time.Second+charged {
					t.Errorf("store fails %t, %v until the deadline: the next request waits %v; want %v", fails, test.patience, d.Delay, time.Second+charged)
				}
			})
		}
	}
}

// So does the delay of one of several servers by itself, whose share of the limit is
// slower.
func TestMaxDelayOfAShareEndsWithTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, middleware.Config{Store: &doubles.Store{Store: gcra.NewMemory(), Fail: 2}, Instances: 2, Logger: unread},
			middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerSecond(1), MaxDelay: 2 * time.Second})
		l.Decide(get("/"))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if d := l.Decide(get("/").WithContext(ctx)); d.Allowed || d.Results[0].RetryAfter != 1500*time.Millisecond || d.RetryAfter != 2*time.Second {
			t.Errorf("got Allowed %t, retry after %v, rounded up %v; want a denial for 1.5s, 2s, as the share gives a unit in 2s", d.Allowed, d.Results[0].RetryAfter, d.RetryAfter)
		}
	})
}
