package middleware_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestRefundOnce(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store},
		middleware.Policy{Name: "a", Key: key("k"), Limit: five, Cost: func(*http.Request) int64 { return 2 }},
		middleware.Policy{Name: "shadow", Key: key("k"), Limit: gcra.PerHour(1), Shadow: true})

	l.Decide(get("/"))
	d := l.Decide(get("/")) // the shadow would deny this one, so it was not charged
	copied := d
	var wg sync.WaitGroup

	for range 10 {
		wg.Go(func() {
			if err := errors.Join(d.Refund(t.Context()), copied.Refund(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := left(t, store, "k", "a", five); got != 3 {
		t.Errorf("a: got %d left; want 3: one of two charges came back", got)
	}

	if got := left(t, store, "k", "shadow", gcra.PerHour(1)); got != 0 {
		t.Errorf("shadow: got %d left; want 0: a charge that was not taken is not refunded", got)
	}

	if store.Refunds != 1 {
		t.Errorf("got %d refunds; want 1", store.Refunds)
	}
}

func TestRefundOfNothing(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(1)})
	l.Decide(get("/"))
	denied := l.Decide(get("/"))
	var none *middleware.Decision
	for name, d := range map[string]*middleware.Decision{"denied": denied, "nil": none, "zero": {}} {
		if err := errors.Join(d.Refund(t.Context()), d.Spend(t.Context(), 1, "only"), d.Settle(t.Context(), 3, "only")); err != nil || store.Refunds != 0 || store.Takes != 2 {
			t.Errorf("%s: got error %v, %d refunds, %d takes; want nothing done", name, err, store.Refunds, store.Takes)
		}
	}
}

func TestRefundFails(t *testing.T) {
	// The store may have made the refund, so there is no second try.
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "only", Key: key("k"), Limit: five})
	d := l.Decide(get("/"))
	store.Fail = 2
	if err := d.Spend(t.Context(), 1, "only"); !errors.Is(err, errDown) {
		t.Errorf("spend: got %v; want the store's error", err)
	}
	if err := d.Refund(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("got %v; want the store's error", err)
	}
	if err := d.Refund(t.Context()); err != nil || store.Refunds != 1 {
		t.Errorf("again: got %v, %d calls; want none", err, store.Refunds)
	}
}

// Refund, Settle and Spend act on the policies that are named. A policy that did not apply
// is left alone, and a name that no policy has is an error that does nothing.
func TestPoliciesByName(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store},
		middleware.Policy{Name: "a", Key: key("k"), Limit: five},
		middleware.Policy{Name: "b", Key: key("k"), Limit: five},
		middleware.Policy{Name: "elsewhere", Key: key("k"), Limit: five, Routes: []string{"/elsewhere"}})

	d := l.Decide(get("/"))
	for _, step := range []struct {
		name    string
		call    func() error
		a, b    int64 // left
		problem string
	}{
		{"spend", func() error { return d.Spend(t.Context(), 2, "a", "elsewhere") }, 2, 4, ""},
		{"settle", func() error { return d.Settle(t.Context(), 2, "b", "elsewhere") }, 2, 3, ""},
		{"refund", func() error { return d.Refund(t.Context(), "a", "elsewhere") }, 5, 3, ""},
		{"refund again", func() error { return d.Refund(t.Context(), "a") }, 5, 3, ""},
		{"spend what is refunded", func() error { return d.Spend(t.Context(), 1, "a", "b") }, 5, 2, ""},
		{"spend, no name", func() error { return d.Spend(t.Context(), 1) }, 5, 2, "no policy is named"},
		{"settle, no name", func() error { return d.Settle(t.Context(), 1) }, 5, 2, "no policy is named"},
		{"spend, unknown", func() error { return d.Spend(t.Context(), 1, "b", "c") }, 5, 2, `policy is "c"; want one of a, b, elsewhere`},
		{"settle, unknown", func() error { return d.Settle(t.Context(), 1, "c") }, 5, 2, `policy is "c"; want one of a, b, elsewhere`},
		{"spend less than nothing", func() error { return d.Spend(t.Context(), -1, "a") }, 5, 2, "-1 units; want 0 or more"},
		{"settle less than nothing", func() error { return d.Settle(t.Context(), -1, "b") }, 5, 2, "-1; want 0 or more"},
		{"refund, unknown", func() error { return d.Refund(t.Context(), "b", "c") }, 5, 2, `policy is "c"; want one of a, b, elsewhere`},
		{"refund the rest", func() error { return d.Refund(t.Context()) }, 5, 5, ""},
	} {
		err := step.call()
		if (err != nil) != (step.problem != "") || err != nil && !strings.Contains(err.Error(), step.problem) {
			t.Errorf("%s: got %v; want %q", step.name, err, step.problem)
		}

		if a, b := left(t, store, "k", "a", five), left(t, store, "k", "b", five); a != step.a || b != step.b {
			t.Errorf("%s: got %d and %d left; want %d and %d", step.name, a, b, step.a, step.b)
		}
	}
}

// Settle asks the store once, for all its policies.
func TestSettleInOneCall(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store},
		middleware.Policy{Name: "a", Key: key("k"), Limit: five}, middleware.Policy{Name: "b", Key: key("k"), Limit: five})
	d := l.Decide(get("/"))
	for _, cost := range []int64{3, 1} {
		before := store.Takes + store.Refunds
		if err := d.Settle(t.Context(), cost, "a", "b"); err != nil {
			t.Fatal(err)
		}
		if n := store.Takes + store.Refunds - before; n != 1 {
			t.Errorf("cost %d: got %d calls of the store; want 1", cost, n)
		}
	}
}
