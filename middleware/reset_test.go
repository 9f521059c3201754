package middleware_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// A denied client is allowed again after a reset, also under MaxDelay. Other
// subjects and policies keep their state.
func TestReset(t *testing.T) {
	store, _ := newStore()
	month := gcra.Quota(9, gcra.Monthly)
	path := func(r *http.Request) (string, error) { return r.URL.Path, nil }
	l := limiter(t, middleware.Config{Store: store},
		middleware.Policy{Name: "a", Key: path, Limit: gcra.PerHour(2)},
		middleware.Policy{Name: "queue", Key: path, Limit: gcra.PerHour(1), MaxDelay: 2 * time.Hour},
		middleware.Policy{Name: "plan", Key: path, Limit: five, LimitFor: func(*http.Request) gcra.Limit { return gcra.PerHour(9) }},
		middleware.Policy{Name: "month", Key: path, Limit: five, LimitFor: func(*http.Request) gcra.Limit { return month }, Plans: map[string]gcra.Limit{"pro": month}})

	for _, subject := range []string{"/x", "/y"} {
		for i, want := range []int{200, 200, 429} {
			if d := l.Decide(get(subject)); d.Status() != want {
				t.Fatalf("%s, request %d: got %d; want %d", subject, i+1, d.Status(), want)
			}
		}
	}

	for _, policy := range []string{"a", "queue", "plan", "month"} {
		if err := l.Reset(t.Context(), "/x", policy); err != nil {
			t.Errorf("reset of %s: %v", policy, err)
		}
	}

	if got := left(t, store, "/x", "plan", gcra.PerHour(9)); got != 9 {
		t.Errorf("plan, by LimitFor: got %d left; want 9", got)
	}
	if got := left(t, store, "/x", "month", month); got != 9 {
		t.Errorf("month, a quota of Plans: got %d left; want 9", got)
	}

	if d := l.Decide(get("/x")); !d.Allowed || d.Delay != 0 {
		t.Errorf("after the reset: got %d, delay %v; want 200 at once", d.Status(), d.Delay)
	}

	if d := l.Decide(get("/y")); d.Status() != http.StatusTooManyRequests {
		t.Errorf("another subject: got %d; want 429", d.Status())
	}
}

// The local state of FailLocal is reset too, even if the store fails.
func TestResetOfLocalState(t *testing.T) {
	for _, panics := range []bool{false, true} {
		store, _ := newStore()
		store.Fail, store.Panics = 1000, panics
		l := limiter(t, middleware.Config{Store: store, Instances: 2, Logger: unread},
			middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(4)})

		ask := func() (statuses []int) {
			for range 3 {
				statuses = append(statuses, l.Decide(get("/")).Status())
			}
			return statuses
		}

		if got := ask(); got[1] != 200 || got[2] != 429 {
			t.Fatalf("half of 4 an hour: got %v; want the third denied", got)
		}
		if err := l.Reset(t.Context(), "k", "only"); !errors.Is(err, errDown) {
			t.Errorf("reset: got %v; want the store's error", err)
		}

		if got := ask(); got[1] != 200 || got[2] != 429 {
			t.Errorf("after the reset: got %v; want two more", got)
		}
	}
}

func TestResetMistakes(t *testing.T) {
	l := limiter(t, middleware.Config{Store: gcra.NewMemory()},
		middleware.Policy{Name: "fixed", Key: key("k"), Limit: five},
		middleware.Policy{Name: "plan", Key: key("k"), LimitFor: func(*http.Request) gcra.Limit { return five }},
		middleware.Policy{Name: "list", Key: key("k"), Limit: five, Override: func(string) (middleware.Override, bool) { panic("list") }})
	for policy, want := range map[string]string{
		"plan": "ratelimit: reset: policy plan has LimitFor, and neither Limit nor Plans; want",
		"list": "ratelimit: reset: Override of policy list: panic: list",
		"plam": `ratelimit: reset: policy is "plam"; want one of fixed, plan, list`,
		"":     `ratelimit: reset: policy is ""; want one of fixed, plan, list`,
	} {
		if err := l.Reset(t.Context(), "k", policy); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v; want %s", policy, err, want)
		}
	}
}
