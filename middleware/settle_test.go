package middleware_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// wantMissing checks what Settle could not charge; "" is an error of nothing missing.
func wantMissing(t *testing.T, err error, want map[string]int64) {
	t.Helper()
	var short *middleware.SettleError
	errors.As(err, &short)
	switch {
	case len(want) == 0 && err != nil:
		t.Errorf("got %v; want no error", err)
	case len(want) > 0 && (short == nil || !maps.Equal(short.Missing, want) || !strings.Contains(err.Error(), " were not charged: no more were left")):
		t.Errorf("got %v; want the missing units %v", err, want)
	}
}

// The last of several settlements counts. What is missing is not charged, whether the debt
// or, without any, the bucket is used up.
func TestSettle(t *testing.T) {
	limits := map[string]gcra.Limit{
		"plain": gcra.PerHour(100), "debt": gcra.PerHour(50), "quota": gcra.Quota(80, gcra.Monthly),
		"queue": gcra.PerHour(60), "shadow": gcra.PerHour(30),
	}

	store, _ := newStore()
	estimate := func(*http.Request) int64 { return 10 }
	l := limiter(t, middleware.Config{Store: store},
		middleware.Policy{Name: "plain", Key: key("k"), Limit: limits["plain"], Cost: estimate},
		middleware.Policy{Name: "debt", Key: key("k"), Limit: limits["debt"], Cost: estimate, MaxDebt: 70},
		middleware.Policy{Name: "quota", Key: key("k"), Limit: limits["quota"], Cost: estimate, MaxDebt: 50},
		middleware.Policy{Name: "queue", Key: key("k"), Limit: limits["queue"], Cost: estimate, MaxDebt: 1000, MaxDelay: time.Minute},
		middleware.Policy{Name: "shadow", Key: key("k"), Limit: limits["shadow"], Cost: estimate, Shadow: true})

	d := l.Decide(get("/"))
	type units = map[string]int64

	for _, step := range []struct {
		cost          int64
		left, missing units
	}{
		{10, units{"plain": 90, "debt": 40, "quota": 70, "queue": 50, "shadow": 20}, nil},
		{4, units{"plain": 96, "debt": 46, "quota": 76, "queue": 56, "shadow": 26}, nil},
		{20, units{"plain": 80, "debt": 30, "quota": 60, "queue": 40, "shadow": 10}, nil},
		{100, units{"plain": 0, "debt": -50, "quota": -20, "queue": -40, "shadow": 0}, nil},
		{130, units{"plain": 0, "debt": -70, "quota": -50, "queue": -70, "shadow": 0}, units{"plain": 30, "debt": 10}},
		{1e15, units{"plain": 0, "debt": -70, "quota": -50, "queue": -1000, "shadow": 0},
			units{"plain": 1e15 - 100, "debt": 1e15 - 120, "quota": 1e15 - 130, "queue": 1e15 - 1060}},
		{90, units{"plain": 10, "debt": -40, "quota": -10, "queue": -30, "shadow": 0}, nil},
		{0, units{"plain": 100, "debt": 50, "quota": 80, "queue": 60, "shadow": 30}, nil},
		{45, units{"plain": 55, "debt": 5, "quota": 35, "queue": 15, "shadow": 0}, nil},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the client has hung up
		wantMissing(t, d.Settle(ctx, step.cost, "plain", "debt", "quota", "queue", "shadow"), step.missing)

		for name, want := range step.left {
			l := limits[name]
			debt := left(t, store, "k", name, larger(l, 5000)) - 5000
			if debt != want {
				t.Errorf("cost %d: %s: got %d left; want %d", step.cost, name, debt, want)
			}
		}
	}
	if err := d.Settle(t.Context(), -1, "plain"); err == nil || !strings.Contains(err.Error(), "-1; want 0 or more") {
		t.Errorf("a negative cost: got %v", err)
	}
	if err := errors.Join(d.Refund(t.Context()), d.Settle(t.Context(), 30, "plain", "debt")); err != nil {
		t.Fatal(err)
	}

	for name, l := range limits {
		if got := left(t, store, "k", name, l); got != l.Capacity() {
			t.Errorf("settled after a Refund: %s: got %d left; want %d", name, got, l.Capacity())
		}
	}
}

// Many requests settle one key at once. Together they take what is left and the debt, no
// more, and each unit is either charged or missing.
func TestConcurrentSettle(t *testing.T) {
	store, _ := newStore()
	limit := gcra.PerHour(90)
	l := limiter(t, middleware.Config{Store: store.Store}, // the counting of flaky is not for many goroutines
		middleware.Policy{Name: "p", Key: key("k"), Limit: limit, MaxDebt: 100})
	decisions := make([]*middleware.Decision, 10)
	for i := range decisions {
		decisions[i] = l.Decide(get("/"))
	}

	var missing atomic.Int64
	var wg sync.WaitGroup

	for i := range decisions {
		wg.Go(func() {
			var short *middleware.SettleError
			if err := decisions[i].Settle(t.Context(), 30, "p"); errors.As(err, &short) {
				missing.Add(short.Missing["p"])
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := left(t, store, "k", "p", larger(limit, 500)) - 500; got != -100 || missing.Load() != 110 {
		t.Errorf("got %d left, %d missing; want -100 and 110 of 300", got, missing.Load())
	}
}

// Settlements, spending and a Refund of one request at the same time, while policies are
// reloaded: the Refund gives back whatever they have charged, and they add nothing later.
func TestSettleWhileRefunded(t *testing.T) {
	store, _ := newStore()
	policy := middleware.Policy{Name: "p", Key: key("k"), Limit: gcra.PerHour(50), MaxDebt: 100}
	quota := middleware.Policy{Name: "q", Key: key("k"), Limit: gcra.Quota(50, gcra.Daily), MaxDebt: 100}
	l := limiter(t, middleware.Config{Store: store.Store}, policy, quota)

	for range 50 {
		d := l.Decide(get("/"))
		var wg sync.WaitGroup

		for i := range int64(8) {
			wg.Go(func() {
				if i == 5 {
					if err := errors.Join(d.Refund(t.Context()), l.Reload(policy, quota)); err != nil {
						t.Error(err)
					}
					return
				}

				var short *middleware.SettleError
				if err := d.Settle(t.Context(), 40*i, "p", "q"); err != nil && !errors.As(err, &short) {
					t.Error(err)
				}
				if err := d.Spend(t.Context(), i, "p", "q"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if p, q := left(t, store, "k", "p", policy.Limit), left(t, store, "k", "q", quota.Limit); p != 50 || q != 50 {
			t.Fatalf("got %d and %d left; want 50", p, q)
		}
	}
}

func TestSettleNothing(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "p", Key: key("k"), Limit: gcra.PerHour(1), MaxDebt: 5})
	l.Decide(get("/"))
	denied := l.Decide(get("/"))
	for name, d := range map[string]*middleware.Decision{"denied": denied, "nil": nil, "zero": {}} {
		if err := d.Settle(t.Context(), 3, "p"); err != nil || store.refunds != 0 || store.takes != 2 {
			t.Errorf("%s: got error %v, %d refunds, %d takes; want nothing done", name, err, store.refunds, store.takes)
		}
	}
}

// A refund in a period that is over does nothing, and a late charge goes to the current one.
func TestSettleAcrossPeriods(t *testing.T) {
	store, clock := newStore()
	quota := gcra.Quota(10, gcra.Hourly)
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "p", Key: key("k"), Limit: quota, MaxDebt: 5})
	lower, higher := l.Decide(get("/")), l.Decide(get("/"))
	wantMissing(t, lower.Settle(t.Context(), 6, "p"), nil)

	clock.Add(time.Hour)
	l.Decide(get("/"))
	wantMissing(t, lower.Settle(t.Context(), 2, "p"), nil)
	wantMissing(t, higher.Settle(t.Context(), 4, "p"), nil)
	if got := left(t, store, "k", "p", quota); got != 6 {
		t.Errorf("got %d left; want 6: a request and 3 units that came late", got)
	}

	wantMissing(t, higher.Settle(t.Context(), 20, "p"), map[string]int64{"p": 5})
	clock.Add(time.Hour)
	if got := left(t, store, "k", "p", quota); got != 10 {
		t.Errorf("got %d left; want 10: the debt of a quota ends with its period", got)
	}
}

// While the store is away, requests that this server has decided are settled on its own
// state, with its share of the debt.
func TestSettleLocally(t *testing.T) {
	for name, tt := range map[string]struct {
		limit   gcra.Limit
		cost    int64
		missing int64
	}{
		"a rate":         {gcra.PerHour(40).WithBurst(40), 15, 0},
		"a quota":        {gcra.Quota(40, gcra.Hourly), 15, 0},
		"beyond a rate":  {gcra.PerHour(40).WithBurst(40), 36, 6},
		"beyond a quota": {gcra.Quota(40, gcra.Hourly), 100, 70},
	} {
		store, _ := newStore()
		l := limiter(t, middleware.Config{Store: store, Instances: 4, Logger: unread},
			middleware.Policy{Name: "p", Key: key("k"), Limit: tt.limit, MaxDebt: 80})
		store.fail = 1
		d := l.Decide(get("/"))
		var missing map[string]int64
		if tt.missing > 0 {
			missing = map[string]int64{"p": tt.missing}
		}

		wantMissing(t, d.Settle(t.Context(), tt.cost, "p"), missing)
		if got := left(t, store, "k", "p", tt.limit); got != 40 {
			t.Errorf("%s: store: got %d left; want 40: the charge was local", name, got)
		}

		store.fail = 1
		if d := l.Decide(get("/")); d.Allowed || d.RetryAfter == 0 {
			t.Errorf("%s: next request: got %v, retry after %v; want a denial", name, d.Allowed, d.RetryAfter)
		}

		wantMissing(t, d.Settle(t.Context(), 0, "p"), nil)
		store.fail = 1
		if d := l.Decide(get("/")); !d.Allowed {
			t.Errorf("%s: all is given back: got a denial", name)
		}
	}
}

// A failed settlement may be repeated: what may have been given back is not given back again.
func TestSettleFails(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "p", Key: key("k"), Limit: gcra.PerHour(10)})
	d := l.Decide(get("/"))
	for _, step := range []struct {
		fail       int
		cost, left int64
	}{{1, 5, 9}, {0, 5, 5}, {1, 2, 5}, {0, 2, 5}, {0, 4, 3}} {
		store.fail = step.fail
		if err := d.Settle(t.Context(), step.cost, "p"); errors.Is(err, errDown) != (step.fail > 0) {
			t.Errorf("cost %d: got %v; want the store's error: %v", step.cost, err, step.fail > 0)
		}
		if got := left(t, store, "k", "p", gcra.PerHour(10)); got != step.left {
			t.Errorf("cost %d: got %d left; want %d", step.cost, got, step.left)
		}
	}
}

// labelled is a store that asks for the Decision, as one that labels spans does.
type labelled struct{ gcra.Store }

func (s labelled) Take(ctx context.Context, charges []gcra.Charge) (bool, error) {
	if charges[0].Late && middleware.FromContext(ctx) == nil {
		return false, errors.New("no Decision")
	}
	return s.Store.Take(ctx, charges)
}

// While Settle asks the store, the Decision can be found in the request's context.
func TestSettleOnAStoreThatAsksForTheDecision(t *testing.T) {
	l := limiter(t, middleware.Config{Store: labelled{gcra.NewMemory()}},
		middleware.Policy{Name: "rows", Key: key("k"), Limit: gcra.PerHour(10), Cost: func(*http.Request) int64 { return 1 }})

	r, denied := l.Admit(http.Header{}, get("/"))
	if denied != nil {
		t.Fatal(denied)
	}
	if err := middleware.FromContext(r.Context()).Settle(r.Context(), 5, "rows"); err != nil {
		t.Error(err)
	}
}
