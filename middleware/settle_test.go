package middleware_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

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
		store.Fail = 1
		d := l.Decide(get("/"))
		var missing map[string]int64
		if tt.missing > 0 {
			missing = map[string]int64{"p": tt.missing}
		}

		wantMissing(t, d.Settle(t.Context(), tt.cost, "p"), missing)
		if got := left(t, store, "k", "p", tt.limit); got != 40 {
			t.Errorf("%s: store: got %d left; want 40: the charge was local", name, got)
		}

		store.Fail = 1
		if d := l.Decide(get("/")); d.Allowed || d.RetryAfter == 0 {
			t.Errorf("%s: next request: got %v, retry after %v; want a denial", name, d.Allowed, d.RetryAfter)
		}

		wantMissing(t, d.Settle(t.Context(), 0, "p"), nil)
		store.Fail = 1
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
		store.Fail = step.fail
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
