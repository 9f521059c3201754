package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestAdmit(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "calls", Key: key("k"), Limit: gcra.PerMinute(1)})

	for _, want := range []struct {
		allowed                bool
		remaining, reset, wait string
	}{
		{true, "0", "60", ""},
		{false, "0", "60", "60"},
	} {
		h := http.Header{}
		r, denied := l.Admit(h, httptest.NewRequest(http.MethodPost, "/pkg.Service/Method", nil))
		if (denied == nil) != want.allowed || h.Get("RateLimit-Remaining") != want.remaining || h.Get("RateLimit-Reset") != want.reset || h.Get("Retry-After") != want.wait {
			t.Errorf("got %+v, fields %v; want %+v", denied, h, want)
		}

		if carried := middleware.FromContext(r.Context()); carried == nil || carried.Allowed != want.allowed || len(carried.Results) != 1 {
			t.Errorf("Decision of the context: got %+v; want Allowed %t", carried, want.allowed)
		}
	}
}

// A call that ends while it is held back is denied, by the error of its context. Its Decision has
// the time that was measured for observers.
func TestAdmitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(*http.Request) (string, error) { time.Sleep(10 * time.Millisecond); return "k", nil }
		l := limiter(t, middleware.Config{Store: gcra.NewMemory(), Observe: func(*http.Request, *middleware.Decision) {}},
			middleware.Policy{Name: "calls", Key: slow, Limit: gcra.PerSecond(1), MaxDelay: 2 * time.Second})
		l.Decide(get("/"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		start := time.Now()
		_, d := l.Admit(http.Header{}, get("/").WithContext(ctx))
		if waited := time.Since(start); d == nil || d.Allowed || d.Delay != 990*time.Millisecond || d.Err != context.Canceled || waited != 300*time.Millisecond || d.Took != 10*time.Millisecond {
			t.Errorf("got %+v after %v; want a denial by context.Canceled after 300ms of 990, which took 10ms", d, waited)
		}
		if err := d.Refund(t.Context()); err != nil || l.Decide(get("/")).Delay > time.Second {
			t.Errorf("a refund of what was held back: got %v; want its place for the next", err)
		}
	})
}
