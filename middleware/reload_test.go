package middleware_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestReloadChangesNothingAfterAMistake(t *testing.T) {
	store, _ := newStore()
	good := middleware.Policy{Name: "a", Key: key("k"), Limit: gcra.PerMinute(10)}
	l := limiter(t, middleware.Config{Store: store}, good)
	err := l.Reload(middleware.Policy{Name: "b", Key: key("k")}, middleware.Policy{Name: "c", Limit: gcra.PerMinute(1)})
	if err == nil || !strings.Contains(err.Error(), `policy "b": Limit is`) || !strings.Contains(err.Error(), `policy "c": Key is nil`) {
		t.Errorf("got %v; want both mistakes", err)
	}
	if got := l.Policies(); len(got) != 1 || got[0].Name != "a" {
		t.Errorf("Policies: got %+v; want the old ones", got)
	}
}

// Each request is decided either by the old policies or by the new ones: two that
// are reloaded together are seen together.
func TestReloadUnderLoad(t *testing.T) {
	store := gcra.NewMemory()
	pair := func(n int64) []middleware.Policy {
		return []middleware.Policy{
			{Name: "a", Key: key("k"), Limit: gcra.PerSecond(n), Routes: []string{"GET /"}},
			{Name: "b", Key: key("k"), Limit: gcra.PerSecond(n)},
		}
	}

	l := limiter(t, middleware.Config{Store: store}, pair(900_000)...)
	var done atomic.Bool
	var all sync.WaitGroup

	for range 4 {
		all.Go(func() {
			for !done.Load() {
				d := l.Decide(get("/"))
				if !d.Allowed || len(d.Results) != 2 || d.Results[0].Limit != d.Results[1].Limit {
					t.Errorf("got %+v; want two results of one limit, allowed", d)
					return
				}
			}
		})
	}

	for i := range int64(500) {
		if err := l.Reload(pair(900_000 + i)...); err != nil {
			t.Error(err)
		}
	}

	done.Store(true)
	all.Wait()
}

func TestObserversAreCalledInOrder(t *testing.T) {
	store, _ := newStore()
	var calls []string
	var took []time.Duration
	note := func(name string) func(*http.Request, *middleware.Decision) {
		return func(_ *http.Request, d *middleware.Decision) { calls, took = append(calls, name), append(took, d.Took) }
	}

	l := limiter(t, middleware.Config{Store: store, Observe: note("configured")},
		middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerMinute(10)})
	l.Observe(nil)
	l.Observe(note("second"))
	l.Observe(note("third"))
	l.Decide(get("/"))
	if want := []string{"configured", "second", "third"}; !slices.Equal(calls, want) {
		t.Errorf("got calls %v; want %v", calls, want)
	}

	if took[0] <= 0 || took[0] != took[2] {
		t.Errorf("Took: got %v; want one time, above 0", took)
	}
}

// A late Refund or Spend, under an old limit, erases no debt of the current limit.
func TestReloadBeforeALateRefund(t *testing.T) {
	for name, late := range map[string]func(*middleware.Decision) error{
		"refund": func(d *middleware.Decision) error { return d.Refund(t.Context()) },
		"spend":  func(d *middleware.Decision) error { return d.Spend(t.Context(), 1, "only") },
	} {
		store, _ := newStore()
		p := middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerMinute(10)}
		l := limiter(t, middleware.Config{Store: store}, p)
		_, slow := allow(l, get("/"))
		p.Limit = gcra.PerHour(1000)
		if err := l.Reload(p); err != nil {
			t.Fatal(err)
		}

		all := func() (passed int) {
			for l.Decide(get("/")).Allowed {
				passed++
			}
			return passed
		}

		before := all()
		if err := late(slow); err != nil {
			t.Fatal(err)
		}

		// A unit of 10 a minute is worth six seconds, two of 1000 an hour.
		if after := all(); after > 2 {
			t.Errorf("%s: %d passed, and %d after it; want at most 2", name, before, after)
		}
	}
}

// A goroutine of an observer may refund while the headers are written.
func TestObserverRefundsMeanwhile(t *testing.T) {
	c := new(doubles.Clock)
	store := gcra.NewMemory(gcra.MemoryConfig{Now: c.Now})
	var all sync.WaitGroup
	var d *middleware.Decision
	l := limiter(t, middleware.Config{Store: store, Observe: func(_ *http.Request, seen *middleware.Decision) {
		d = seen
		all.Go(func() { _ = seen.Refund(context.Background()) })
	}}, middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerMinute(10)})
	for range 100 {
		allow(l, get("/"))
	}
	all.Wait()
	if err := d.Refund(t.Context()); err != nil || left(t, store, "k", "only", gcra.PerMinute(10)) != 10 {
		t.Errorf("all refunded once: got %v, %d left; want 10", err, left(t, store, "k", "only", gcra.PerMinute(10)))
	}
}
