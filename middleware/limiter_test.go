package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestNothingApplies(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "only", Key: key("k"), Limit: five, Routes: []string{"/other"}})
	res, d := allow(l, get("/"))
	if d == nil || !d.Allowed || len(d.Results) != 0 || len(res.Header) != 0 || store.Takes != 0 {
		t.Errorf("got %+v, header %v, %d takes; want allowed, no results, no header, no call", d, res.Header, store.Takes)
	}
}

func TestCanceledRequestIsCharged(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "only", Key: key("k"), Limit: five})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := l.Decide(get("/").WithContext(ctx))
	if d.Err != nil || store.Canceled {
		t.Errorf("got error %v, store saw the cancellation: %t; want a decision as usual", d.Err, store.Canceled)
	}
	if err := errors.Join(d.Settle(ctx, 2, "only"), d.Settle(ctx, 1, "only"), d.Spend(ctx, 1, "only")); err != nil {
		t.Error(err)
	}

	if d := l.Peek(get("/").WithContext(ctx)); d.Err != nil || d.Results[0].Remaining != 3 {
		t.Errorf("a peek: got error %v, %+v; want 3 left", d.Err, d.Results)
	}

	if got := left(t, store, "k", "only", five); got != 3 {
		t.Errorf("got %d left; want 3", got)
	}
	if err := d.Refund(ctx); err != nil {
		t.Error(err)
	}

	if got := left(t, store, "k", "only", five); got != 5 || store.Canceled {
		t.Errorf("got %d left, store saw the cancellation: %t; want 5, false", got, store.Canceled)
	}
}

func TestMaxDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, middleware.Config{Store: gcra.NewMemory()},
			middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerSecond(1), MaxDelay: 2 * time.Second})

		// Capacity 1 and two places in the queue, a second each.
		for i, want := range []struct {
			status int
			waited time.Duration
		}{{200, 0}, {200, time.Second}, {200, time.Second}} {
			start := time.Now()
			res, _ := allow(l, get("/"))
			if got := time.Since(start); res.StatusCode != want.status || got != want.waited {
				t.Errorf("request %d: got %d after %v; want %d after %v", i+1, res.StatusCode, got, want.status, want.waited)
			}
		}

		// Decide does not wait.
		start := time.Now()
		if d := l.Decide(get("/")); d.Delay != time.Second || time.Since(start) != 0 {
			t.Errorf("Decide: got delay %v after %v; want 1s at once", d.Delay, time.Since(start))
		}

		if d := l.Decide(get("/")); d.Delay != 2*time.Second {
			t.Errorf("Decide: got delay %v; want 2s", d.Delay)
		}

		if res, _ := allow(l, get("/")); res.StatusCode != 429 || res.Header.Get("Retry-After") != "1" {
			t.Errorf("queue full: got %d, Retry-After %q; want 429, 1", res.StatusCode, res.Header.Get("Retry-After"))
		}
	})
}

func TestMaxDelayEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, middleware.Config{Store: gcra.NewMemory()},
			middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(1), MaxDelay: 2 * time.Hour})
		allow(l, get("/"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		// If the server ended the context, the client may still be there. An implied
		// 200 would mean that the request was served.
		res, d := allow(l, get("/").WithContext(ctx))
		if time.Since(start) != time.Second || res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" {
			t.Errorf("got %d after %v; want 503 after 1s", res.StatusCode, time.Since(start))
		}
		if body, _ := io.ReadAll(res.Body); !strings.Contains(string(body), "cancelled while a rate limit held it back") {
			t.Errorf("got %s; want a body that says why", body)
		}

		// Observers have got the Decision before: it stays as it is.
		if !d.Allowed || d.Err != nil || d.Delay != time.Hour {
			t.Errorf("got %+v; want a request that was allowed, with a delay of an hour", d)
		}
	})
}

// A Cost that returns 0 makes a peek: the request passes, also with nothing left, and takes
// nothing. A Policy without a Cost takes 1.
func TestCostOfZeroPeeks(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{
		Name: "p", Key: key("k"), Limit: five, Cost: func(r *http.Request) int64 { return r.ContentLength }})
	paid, free := get("/"), get("/")
	paid.ContentLength, free.ContentLength = 5, 0

	for _, want := range []int64{5, 0, 0} {
		if d := l.Decide(free); !d.Allowed || d.Results[0].Remaining != want || d.Results[0].Taken != 0 {
			t.Errorf("a cost of 0: got %+v; want it to pass, and %d left", d.Results[0], want)
		}
		l.Decide(paid)
	}

	d := l.Decide(free)
	wantMissing(t, d.Settle(t.Context(), 2, "p"), map[string]int64{"p": 2})
	if err := d.Refund(t.Context()); err != nil || left(t, store, "k", "p", five) != 0 {
		t.Errorf("a refund of nothing: got %v, %d left; want 0", err, left(t, store, "k", "p", five))
	}
}
