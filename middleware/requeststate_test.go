package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/adapter"
)

func TestFramework(t *testing.T) {
	store, _ := newStore()
	seen := ""
	l := limiter(t, middleware.Config{Logger: unread, Store: store.Store}, middleware.Policy{Name: "all", Limit: five, Key: func(r *http.Request) (string, error) {
		seen, _ = adapter.Framework[string](r.Context())
		return "k", nil
	}})

	r := get("/")
	if _, ok := adapter.Framework[string](r.Context()); ok || middleware.FromContext(r.Context()) != nil {
		t.Error("a plain request carries something")
	}

	r = adapter.WithFramework(r, "", "the framework's own")
	if middleware.FromContext(r.Context()) != nil {
		t.Error("a request that passed no limiter carries a Decision")
	}

	passed, ok := l.Allow(httptest.NewRecorder(), r)
	if !ok || passed != r || seen != "the framework's own" {
		t.Errorf("got %t, same request %t, framework %v; want true, true and the one given", ok, passed == r, seen)
	}

	inside := adapter.WithRoute(passed, "GET /")
	if c, _ := adapter.Framework[string](inside.Context()); c != "the framework's own" {
		t.Error("WithRoute without a context of a framework: the request has lost the one that it carried")
	}

	first := middleware.FromContext(passed.Context())

	// A request that passes two limiters has two Decisions.
	again, _ := l.Allow(httptest.NewRecorder(), passed)
	if again == passed || middleware.FromContext(again.Context()) == first || seen != "the framework's own" {
		t.Error("the second limiter shares the first one's Decision")
	}

	if got := first.Results[0].Remaining; got != 4 {
		t.Errorf("first decision: got %d remaining; want 4 still", got)
	}

	// The request's own context still works.
	type mark struct{}
	ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), mark{}, "m"))
	r = adapter.WithFramework(get("/").WithContext(ctx), "", 1)
	child, stop := context.WithCancel(r.Context())
	defer stop()
	cause := errors.New("cause")
	cancel(cause)
	<-child.Done()
	if r.Context().Value(mark{}) != "m" || context.Cause(child) != cause {
		t.Errorf("got value %v, cause %v; want m, cause", r.Context().Value(mark{}), context.Cause(child))
	}
}

// atOnce calls functions at the same time, each in its goroutine, and returns when they have.
func atOnce(all ...func()) {
	var wg sync.WaitGroup
	var ready atomic.Int32
	for _, f := range all {
		wg.Go(func() {
			ready.Add(1)
			for int(ready.Load()) < len(all) {
				runtime.Gosched()
			}
			f()
		})
	}
	wg.Wait()
}

// million is a limit that allows all requests of a test.
var million = gcra.PerSecond(1_000_000)

// meanwhile is a context that does something before its first look-up.
type meanwhile struct {
	context.Context
	do func()
}

func (m *meanwhile) Value(key any) any {
	if do := m.do; do != nil {
		m.do = nil
		do()
	}
	return m.Context.Value(key)
}

// One request may go to two limiters at the same time, as when two handlers get it. One of them keeps
// its Decision in the request, the other in a copy.
func TestRequestIsClaimedOnce(t *testing.T) {
	l := limiter(t, middleware.Config{Store: gcra.NewMemory(), Logger: unread}, middleware.Policy{Name: "p", Key: key("k"), Limit: million})
	ctx := &meanwhile{Context: t.Context()}
	shared := adapter.WithRoute(get("/").WithContext(ctx), "")
	ctx.do = func() { l.Allow(httptest.NewRecorder(), shared) }
	r, _ := l.Allow(httptest.NewRecorder(), shared) // looks for an outer limiter before it claims the request
	if a, b := middleware.FromContext(shared.Context()), middleware.FromContext(r.Context()); a == nil || b == nil || a == b {
		t.Errorf("got the Decisions %p and %p; want two", a, b)
	}
}

// What other goroutines do with a request while a limiter decides about it is no data race: the state
// in the request is that limiter's until its Decision stands and the headers are written.
func TestGoroutinesShareARequest(t *testing.T) {
	policy := middleware.Policy{Name: "p", Key: keyfunc.Route, Limit: million}
	build := func() *middleware.Limiter {
		return limiter(t, middleware.Config{Store: gcra.NewMemory(), Logger: unread, Observe: func(r *http.Request, _ *middleware.Decision) {
			_, _ = keyfunc.Route(r)
		}}, policy)
	}
	l, other := build(), build()

	for name, f := range map[string]func(*http.Request){
		"Allow":  func(r *http.Request) { other.Allow(httptest.NewRecorder(), r) },
		"Decide": func(r *http.Request) { other.Decide(r) },
		"Peek":   func(r *http.Request) { other.Peek(r) },
		"Refund": func(r *http.Request) { _ = middleware.FromContext(r.Context()).Refund(context.Background()) },
	} {
		t.Run(name, func(*testing.T) {
			for range 500 {
				shared := adapter.WithRoute(get("/"), "")
				atOnce(func() { l.Allow(httptest.NewRecorder(), shared) }, func() { f(shared) })
			}
		})
	}
}

// Handlers that ask for the Decision at the same time get the same one.
func TestOneDecisionForAllHandlers(t *testing.T) {
	l := limiter(t, middleware.Config{Store: gcra.NewMemory()}, middleware.Policy{Name: "p", Key: key("k"), Limit: million})
	for range 500 {
		r, _ := l.Allow(httptest.NewRecorder(), get("/"))
		var got [2]*middleware.Decision
		atOnce(
			func() { got[0] = middleware.FromContext(r.Context()) },
			func() { got[1] = middleware.FromContext(r.Context()) })

		if got[0] != got[1] {
			t.Fatal("two handlers got two Decisions of one limiter")
		}
	}
}

// A stream spends in a goroutine of its own while the request goes on to a limiter further in, which
// compares its buckets with what was charged.
func TestSpendBesideALimiterFurtherIn(t *testing.T) {
	store := gcra.NewMemory()
	outer := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "p", Key: key("k"), Limit: million})
	inner := limiter(t, middleware.Config{Store: store, Logger: unread}, middleware.Policy{Name: "p", Key: key("k"), Limit: million})

	for range 300 {
		r, _ := outer.Allow(httptest.NewRecorder(), get("/"))
		atOnce(
			func() { _ = middleware.FromContext(r.Context()).Spend(context.Background(), 1, "p") },
			func() { inner.Allow(httptest.NewRecorder(), r) })
	}
}

// A Key finds no Decision of the limiter that calls it, as there is none yet.
func TestKeyFindsNoDecision(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "p", Limit: five, Key: func(r *http.Request) (string, error) {
		if middleware.FromContext(r.Context()) != nil {
			t.Error("a Key finds the Decision that is being made")
		}
		return "k", nil
	}})

	for _, d := range []*middleware.Decision{l.Decide(get("/")), l.Peek(get("/"))} {
		if len(d.Results) != 1 {
			t.Errorf("got %+v; want one result", d)
		}
	}
}

// A Key may ask another limiter about the request, also in Decide.
func TestKeyAsksAnotherLimiter(t *testing.T) {
	store, _ := newStore()
	inner := limiter(t, middleware.Config{Store: store.Store}, middleware.Policy{Name: "inner", Key: key("k"), Limit: five})
	outer := limiter(t, middleware.Config{Store: store.Store}, middleware.Policy{Name: "outer", Limit: five, Key: func(r *http.Request) (string, error) {
		r, _ = inner.Allow(httptest.NewRecorder(), r)
		return "left " + strconv.FormatInt(middleware.FromContext(r.Context()).Results[0].Remaining, 10), nil
	}})
	allowed, _ := outer.Allow(httptest.NewRecorder(), get("/"))
	for name, d := range map[string]*middleware.Decision{"Allow": middleware.FromContext(allowed.Context()), "Decide": outer.Decide(get("/"))} {
		want := map[string]string{"Allow": "left 4", "Decide": "left 3"}[name]
		if d.Err != nil || len(d.Results) != 1 || d.Results[0].Policy != "outer" || d.Results[0].Subject != want {
			t.Errorf("%s: got %+v, error %v; want one result of outer for %s", name, d.Results, d.Err, want)
		}
	}
}
