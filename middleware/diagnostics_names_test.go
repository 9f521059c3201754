package middleware

import (
	"net/http"
	"runtime"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
)

// slicesStore is a store whose type is not comparable.
type slicesStore struct {
	gcra.Store
	_ []int
}

func newNamed(t *testing.T, log *diagtest.Log, store gcra.Store, p Policy) *Limiter {
	t.Helper()
	p.Key = func(*http.Request) (string, error) { return "k", nil }
	l, err := New(Config{Store: store, Logger: log.Logger()}, p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestSharedName(t *testing.T) {
	hundred, five := gcra.PerMinute(100), gcra.PerMinute(5)
	same := func(s gcra.Store) gcra.Store { return s }
	byPlan := func(*http.Request) gcra.Limit { return five }

	for _, test := range []struct {
		name  string
		other func(store gcra.Store) gcra.Store // the store of the second limiter
		p     Policy
		lines int
	}{
		{"another limit", same, Policy{Name: "a", Limit: five}, 1},
		{"the same limit", same, Policy{Name: "a", Limit: hundred}, 0},
		{"the same limit in other words", same, Policy{Name: "a", Limit: gcra.PerHour(6000).WithBurst(100)}, 0},
		{"a quota, which has buckets of its own", same, Policy{Name: "a", Limit: gcra.Quota(5, gcra.Daily)}, 0},
		{"another name", same, Policy{Name: "b", Limit: five}, 0},
		{"another store", func(gcra.Store) gcra.Store { return gcra.NewMemory() }, Policy{Name: "a", Limit: five}, 0},
		{"stores that cannot be compared", func(s gcra.Store) gcra.Store { return slicesStore{Store: s} }, Policy{Name: "a", Limit: five}, 0},
		{"by request", same, Policy{Name: "a", LimitFor: byPlan}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			log, store := new(diagtest.Log), gcra.NewMemory()
			first := newNamed(t, log, store, Policy{Name: "a", Limit: hundred})
			second := newNamed(t, log, test.other(store), test.p)
			lines := log.Lines()
			if len(lines) != test.lines {
				t.Fatalf("got %v; want %d lines", lines, test.lines)
			}

			if test.lines > 0 {
				line := lines[0]
				if line.Code() != diag.SharedName || line.Attrs["policy"] != "a" || line.Attrs["limit"] != "5/minute" || line.Attrs["other_limit"] != "100/minute" {
					t.Errorf("got %v; want both limits of a", line)
				}
			}

			runtime.KeepAlive(first)
			runtime.KeepAlive(second)
		})
	}
}

// Two limiters that share a limit are reloaded one after the other, so for a moment
// their limits differ.
func TestSharedNameWhileReloading(t *testing.T) {
	log, store := new(diagtest.Log), gcra.NewMemory()
	p := Policy{Name: "a", Limit: gcra.PerMinute(100)}
	limiters := []*Limiter{newNamed(t, log, store, p), newNamed(t, log, store, p)}
	for _, l := range limiters {
		changed := l.Policies()
		changed[0].Limit = gcra.PerMinute(5)
		if err := l.Reload(changed...); err != nil {
			t.Fatal(err)
		}
	}
	if lines := log.Lines(); len(lines) > 0 {
		t.Errorf("got %v; want no line", lines)
	}
}

// The list of limiters keeps none of them alive and does not grow.
func TestSharedNameKeepsNothing(t *testing.T) {
	log, store := new(diagtest.Log), gcra.NewMemory()
	for i := range 1000 {
		newNamed(t, log, store, Policy{Name: "a", Limit: gcra.PerMinute(int64(i + 1))})
		if i%100 == 0 {
			runtime.GC()
		}
	}
	runtime.GC()
	newNamed(t, new(diagtest.Log), store, Policy{Name: "a", Limit: gcra.PerHour(1)})
	limiters.Lock()
	defer limiters.Unlock()
	if n := len(limiters.list); n > 100 {
		t.Errorf("got a list of %d limiters; want no more than the tests use", n)
	}
}
