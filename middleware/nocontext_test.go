package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

const (
	firstCopied = 250 // requests of a policy
	keys        = 8   // at the same time
	perKey      = 200
)

// noContext returns a limiter that borrows the states of most requests from now on,
// for keys that have perKey units.
func noContext(t *testing.T, cfg middleware.Config) *middleware.Limiter {
	t.Helper()
	cfg.NoContext = true
	l := limiter(t, cfg, middleware.Policy{Name: "all", Key: byHeader, Limit: gcra.PerHour(perKey)})
	for i := range firstCopied {
		if _, ok := l.Allow(httptest.NewRecorder(), from("warm "+strconv.Itoa(i))); !ok {
			t.Fatal("denied")
		}
	}
	return l
}

func from(client string) *http.Request {
	r := get("/")
	r.Header.Set("X-Client", client)
	return r
}

// together calls f for each key at the same time.
func together(f func(key string)) {
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() { f("key " + strconv.Itoa(i)) })
	}
	wg.Wait()
}

func TestNoContextCopiesNothing(t *testing.T) {
	store, _ := newStore()
	l := noContext(t, middleware.Config{Store: store.Store, Logger: unread})
	same := 0
	for range perKey {
		r := from("alice")
		passed, ok := l.Allow(httptest.NewRecorder(), r)
		if !ok {
			t.Fatal("denied")
		}
		if passed == r {
			same++
		}
		if d := middleware.FromContext(passed.Context()); d != nil {
			t.Fatalf("got %+v; want no Decision", d)
		}
	}
	if same < perKey/2 { // one in 64 is copied, for the log
		t.Errorf("%d of %d requests were not copied; want most", same, perKey)
	}
	if _, ok := l.Allow(httptest.NewRecorder(), from("alice")); ok {
		t.Error("allowed; want a denial after the burst")
	}
}

// Most requests allocate nothing in memory, if the numbers of their fields are small.
func TestNoContextAllocatesNothing(t *testing.T) {
	l := noContext(t, middleware.Config{Store: gcra.NewMemory()})
	w, r := httptest.NewRecorder(), from("alice")
	if got := testing.AllocsPerRun(perKey-10, func() { l.Allow(w, r) }); got != 0 {
		t.Errorf("got %v allocations a request; want 0, rounded down", got)
	}
}

// A response keeps its fields when its requestState serves another request.
func TestNoContextResponsesKeepTheirFields(t *testing.T) {
	store, _ := newStore()
	for _, headers := range []middleware.Headers{middleware.HeadersDraft6, middleware.HeadersDraft11} {
		l := noContext(t, middleware.Config{Store: store.Store, Headers: headers})
		together(func(key string) {
			key += fmt.Sprint(headers)
			var all []http.Header
			for range perKey {
				w := httptest.NewRecorder()
				l.Allow(w, from(key))
				all = append(all, w.Header())
			}
			for i, h := range all {
				got, want := h.Get("RateLimit-Remaining"), strconv.Itoa(perKey-1-i)
				if headers == middleware.HeadersDraft11 {
					got, want = h.Get("RateLimit"), fmt.Sprintf(`"all";r=%s;t=18`, want)
				}
				if got != want {
					t.Errorf("response %d of %s: got %s; want %s", i, key, got, want)
				}
			}
		})
	}
}

// Observers and Deny may keep their Decision. It stays that of its request, and
// refunds what that request was charged.
func TestNoContextDecisionsThatAreKept(t *testing.T) {
	store, _ := newStore()
	var mu sync.Mutex
	kept := map[string][]middleware.Decision{}
	keep := func(r *http.Request, d middleware.Decision) {
		mu.Lock()
		defer mu.Unlock()
		client := r.Header.Get("X-Client")
		kept[client] = append(kept[client], d)
	}
	observed := noContext(t, middleware.Config{Store: store.Store, Observe: keep})
	var denied *middleware.Decision
	denying := noContext(t, middleware.Config{Store: store.Store, Logger: unread, Deny: func(w http.ResponseWriter, r *http.Request, d middleware.Decision) {
		denied = &d
		w.WriteHeader(d.Status())
	}})
	together(func(key string) {
		for range perKey {
			observed.Allow(httptest.NewRecorder(), from(key))
		}
	})
	together(func(key string) {
		mu.Lock()
		decisions := kept[key]
		mu.Unlock()
		if len(decisions) != perKey {
			t.Errorf("%s: got %d decisions; want %d", key, len(decisions), perKey)
		}
		for _, d := range decisions {
			if err := d.Refund(t.Context()); err != nil || d.Results[0].Subject != key {
				t.Errorf("%s: got a Decision of %s, error %v; want its own, nil", key, d.Results[0].Subject, err)
			}
		}
		if got := left(t, store.Store, key, "all", gcra.PerHour(perKey)); got != perKey {
			t.Errorf("%s: got %d left; want %d: all is refunded", key, got, perKey)
		}
	})
	for range perKey {
		denying.Allow(httptest.NewRecorder(), from("denied"))
	}
	for range perKey {
		denying.Allow(httptest.NewRecorder(), from("denied"))
		observed.Allow(httptest.NewRecorder(), from("next"))
		if err := denied.Refund(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := left(t, store.Store, "next", "all", gcra.PerHour(perKey)); got != 0 {
		t.Errorf("got %d left; want 0: refunds of denials give the next requests nothing back", got)
	}
}

// keeper is a store that keeps what it gets. Every third call of a key fails.
type keeper struct {
	gcra.Store
	mu       sync.Mutex
	calls    map[string]int
	contexts map[string][]context.Context
	failed   []*gcra.Charge
	reused   int
}

func (k *keeper) Take(ctx context.Context, charges []gcra.Charge) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := charges[0].Subject
	k.calls[key]++
	k.contexts[key] = append(k.contexts[key], ctx)
	if k.calls[key]%3 == 0 {
		k.failed = append(k.failed, &charges[0])
		return false, errDown
	}
	for _, c := range k.failed {
		if c == &charges[0] {
			k.reused++
		}
	}
	return k.Store.Take(ctx, charges)
}

// A store may keep the context, and the charges of a call that it could not answer.
func TestNoContextStoreThatKeeps(t *testing.T) {
	store := &keeper{Store: gcra.NewMemory(), calls: map[string]int{}, contexts: map[string][]context.Context{}}
	l := noContext(t, middleware.Config{Store: store, Logger: unread})
	type mark struct{}
	together(func(key string) {
		for range perKey / 4 {
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), mark{}, key))
			l.Allow(httptest.NewRecorder(), from(key).WithContext(ctx))
			cancel()
		}
	})
	if store.reused > 0 {
		t.Errorf("%d requests have the charges of a call that failed; want none", store.reused)
	}
	together(func(key string) {
		for _, ctx := range store.contexts[key] {
			if got := ctx.Value(mark{}); got != key || ctx.Err() != nil || ctx.Done() != nil {
				t.Errorf("a context of %s: got %v, error %v, Done %v; want its own value, and no end", key, got, ctx.Err(), ctx.Done())
			}
		}
	})
}

// The log says so if a handler asks for the Decision, or if a limiter further in
// replaces fields.
func TestNoContextIsLogged(t *testing.T) {
	policy := func(name string) middleware.Policy {
		return middleware.Policy{Name: name, Key: key("k"), Limit: gcra.PerHour(1000)}
	}
	for _, test := range []struct {
		name         string
		outer, inner middleware.Config
		asks         bool
		want         int
	}{
		{"a handler that asks", middleware.Config{NoContext: true}, middleware.Config{}, true, 1},
		{"a handler that asks for the outer one's", middleware.Config{}, middleware.Config{NoContext: true}, true, 0},
		{"a handler that does not ask", middleware.Config{NoContext: true}, middleware.Config{}, false, 0},
		{"a limiter further in", middleware.Config{NoContext: true}, middleware.Config{Headers: middleware.HeadersDraft6}, false, 1},
		{"a limiter further in without fields", middleware.Config{NoContext: true}, middleware.Config{Headers: middleware.HeadersNone}, false, 0},
		{"a limiter further in of one without fields", middleware.Config{NoContext: true, Headers: middleware.HeadersNone}, middleware.Config{Headers: middleware.HeadersDraft6}, false, 0},
	} {
		log := new(diagtest.Log)
		test.outer.Store, test.outer.Logger = gcra.NewMemory(), log.Logger()
		limiters := []*middleware.Limiter{limiter(t, test.outer, policy("outer"))}
		if test.inner.NoContext || test.inner.Headers != 0 {
			test.inner.Store, test.inner.Logger = gcra.NewMemory(), log.Logger()
			limiters = append(limiters, limiter(t, test.inner, policy("inner")))
		}
		for range firstCopied + 100 {
			r, w := get("/"), httptest.NewRecorder()
			for _, l := range limiters {
				r, _ = l.Allow(w, r)
			}
			if test.asks {
				d := middleware.FromContext(r.Context())
				if outer := test.outer.NoContext; (d == nil) != outer || d != nil && d.Results[0].Policy != "outer" {
					t.Fatalf("%s: got Decision %+v", test.name, d)
				}
			}
		}
		lines := log.Lines()
		if len(lines) != test.want || len(lines) > 0 && lines[0].Code() != diag.DecisionWithheld {
			t.Errorf("%s: got %v; want %d lines of decision-withheld", test.name, lines, test.want)
		}
	}
}
