package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestFramework(t *testing.T) {
	store, _ := newStore()
	var seen any
	var mu sync.Mutex

	l := limiter(t, middleware.Config{Logger: unread, Store: store.Store}, middleware.Policy{Name: "all", Limit: five, Key: func(r *http.Request) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		seen = middleware.Framework(r.Context())
		return "k", nil
	}})

	r := get("/")
	if middleware.Framework(r.Context()) != nil || middleware.FromContext(r.Context()) != nil {
		t.Error("a plain request carries something")
	}

	r = middleware.WithRoute(r, "", "the framework's own")
	if middleware.FromContext(r.Context()) != nil {
		t.Error("a request that passed no limiter carries a Decision")
	}

	passed, ok := l.Allow(httptest.NewRecorder(), r)
	if !ok || passed != r || seen != "the framework's own" {
		t.Errorf("got %t, same request %t, framework %v; want true, true and the one given", ok, passed == r, seen)
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

	// Also at the same time, as when one request goes to two handlers.
	shared := middleware.WithRoute(get("/"), "", 1)
	var wg sync.WaitGroup
	var decisions [2]*middleware.Decision

	for i := range decisions {
		wg.Go(func() {
			r, _ := l.Allow(httptest.NewRecorder(), shared)
			decisions[i] = middleware.FromContext(r.Context())
		})
	}
	wg.Wait()
	if decisions[0] == decisions[1] || decisions[0].Results[0].Remaining == decisions[1].Results[0].Remaining {
		t.Error("two limiters at once share a Decision")
	}

	// The request's own context still works.
	type mark struct{}
	ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), mark{}, "m"))
	r = middleware.WithRoute(get("/").WithContext(ctx), "", 1)
	child, stop := context.WithCancel(r.Context())
	defer stop()
	cause := errors.New("cause")
	cancel(cause)
	<-child.Done()
	if r.Context().Value(mark{}) != "m" || context.Cause(child) != cause {
		t.Errorf("got value %v, cause %v; want m, cause", r.Context().Value(mark{}), context.Cause(child))
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
