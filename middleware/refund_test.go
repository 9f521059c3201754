package middleware_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

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

	if store.refunds != 1 {
		t.Errorf("got %d refunds; want 1", store.refunds)
	}
}

func TestRefundOfNothing(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(1)})
	l.Decide(get("/"))
	denied := l.Decide(get("/"))
	var none *middleware.Decision
	for name, d := range map[string]*middleware.Decision{"denied": denied, "nil": none, "zero": {}} {
		if err := errors.Join(d.Refund(t.Context()), d.Spend(t.Context(), 1, "only")); err != nil || store.refunds != 0 || store.takes != 2 {
			t.Errorf("%s: got error %v, %d refunds, %d takes; want nothing done", name, err, store.refunds, store.takes)
		}
	}
}

func TestRefundFails(t *testing.T) {
	// The store may have made the refund, so there is no second try.
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "only", Key: key("k"), Limit: five})
	d := l.Decide(get("/"))
	store.fail = 1
	if err := d.Refund(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("got %v; want the store's error", err)
	}
	if err := d.Refund(t.Context()); err != nil || store.refunds != 1 {
		t.Errorf("again: got %v, %d calls; want none", err, store.refunds)
	}
}

func TestSpend(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store},
		middleware.Policy{Name: "wide", Key: key("k"), Limit: gcra.PerHour(100)},
		middleware.Policy{Name: "narrow", Key: key("k"), Limit: gcra.PerHour(10)},
		middleware.Policy{Name: "queue", Key: key("k"), Limit: gcra.PerHour(20), MaxDelay: 60 * 60e9},
		middleware.Policy{Name: "shadow", Key: key("k"), Limit: gcra.PerHour(50), Shadow: true})

	d := l.Decide(get("/"))
	for _, step := range []struct {
		spend                       int64
		wide, narrow, queue, shadow int64 // left
	}{
		{0, 99, 9, 19, 49},
		{4, 95, 5, 15, 45},
		{7, 88, 0, 8, 38},           // of the narrow one what is left
		{30, 58, 0, 0, 8},           // of the policy with MaxDelay no more than what is left now
		{1_000_000_000, 0, 0, 0, 0}, // above every burst
		{1, 0, 0, 0, 0},
	} {
		if err := d.Spend(t.Context(), step.spend, "wide", "narrow", "queue", "shadow"); err != nil {
			t.Fatalf("spend %d: %v", step.spend, err)
		}

		for name, want := range map[string]int64{"wide": step.wide, "narrow": step.narrow, "queue": step.queue, "shadow": step.shadow} {
			n := map[string]int64{"wide": 100, "narrow": 10, "queue": 20, "shadow": 50}[name]
			if got := left(t, store, "k", name, gcra.PerHour(n)); got != want {
				t.Errorf("spend %d: %s: got %d left; want %d", step.spend, name, got, want)
			}
		}
	}
	if err := d.Spend(t.Context(), -1, "wide", "narrow", "queue", "shadow"); err == nil {
		t.Error("spend -1: got no error")
	}

	store.fail = 1
	if err := d.Spend(t.Context(), 1, "wide", "narrow", "queue", "shadow"); !errors.Is(err, errDown) {
		t.Errorf("the store fails: got %v; want its error", err)
	}

	// A refund gives back the spending too.
	if err := d.Refund(t.Context()); err != nil {
		t.Fatal(err)
	}

	for name, n := range map[string]int64{"wide": 100, "narrow": 10, "queue": 20, "shadow": 50} {
		if got := left(t, store, "k", name, gcra.PerHour(n)); got != n {
			t.Errorf("after the refund: %s: got %d left; want %d", name, got, n)
		}
	}
}

func TestSpendIsNotDelayed(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "only", Key: key("k"), Limit: five, MaxDelay: time.Hour})
	d := l.Decide(get("/"))
	if err := d.Spend(t.Context(), 5, "only"); err != nil {
		t.Fatal(err)
	}

	if d := l.Decide(get("/")); d.Delay != 12*time.Second {
		t.Errorf("next request: got delay %v; want the 12s of an empty bucket", d.Delay)
	}

	// Spend after a Refund does nothing.
	if err := errors.Join(d.Refund(t.Context()), d.Spend(t.Context(), 3, "only")); err != nil {
		t.Fatal(err)
	}

	if got := left(t, store, "k", "only", five); got != 4 {
		t.Errorf("got %d left; want 4: only the second request's is gone", got)
	}
}

// Under MaxDelay a refund moves later requests up, but not those that have their
// delay already: the next request passes together with the last of them.
func TestRefundUnderMaxDelay(t *testing.T) {
	store, clock := newStore()
	l := limiter(t, middleware.Config{Store: store},
		middleware.Policy{Name: "p", Key: key("k"), Limit: gcra.PerSecond(5).WithBurst(1), MaxDelay: time.Second})
	first := l.Decide(get("/"))

	for _, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond} {
		if d := l.Decide(get("/")); d.Delay != want {
			t.Errorf("got delay %v; want %v", d.Delay, want)
		}
	}

	clock.Add(50 * time.Millisecond)
	if err := first.Refund(t.Context()); err != nil {
		t.Fatal(err)
	}

	if d := l.Decide(get("/")); d.Delay != 350*time.Millisecond {
		t.Errorf("after a refund: got delay %v; want 350ms, the moment of the third request", d.Delay)
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
		before := store.takes + store.refunds
		if err := d.Settle(t.Context(), cost, "a", "b"); err != nil {
			t.Fatal(err)
		}
		if n := store.takes + store.refunds - before; n != 1 {
			t.Errorf("cost %d: got %d calls of the store; want 1", cost, n)
		}
	}
}
