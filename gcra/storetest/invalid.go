package storetest

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// noRefill returns a limit of n units that do not refill during a test. Its count is
// its burst, as stores with strict windows require.
func noRefill(n int64) gcra.Limit {
	return gcra.Limit{Count: n, Per: time.Duration(n) * time.Hour, Burst: n}
}

// spent returns the used units of a bucket of noRefill(n).
func spent(t *testing.T, b Backend, subject, policy string, n int64) int64 {
	t.Helper()
	r, err := gcra.Take(t.Context(), b.Store, gcra.Charge{Subject: subject, Policy: policy, Limit: noRefill(n), Peek: true})
	if err != nil {
		t.Fatalf("peeking at %.40q, %.40q: %v", subject, policy, err)
	}
	return n - r.Remaining
}

// An invalid charge is an error, alone or with others, and changes no bucket.
func invalidCharges(t *testing.T, b Backend) {
	good := gcra.Charge{Subject: "good", Policy: "p", Limit: noRefill(10), Cost: 1}
	for _, tt := range []struct {
		name   string
		change func(*gcra.Charge)
	}{
		{"zero limit", func(c *gcra.Charge) { c.Limit = gcra.Limit{} }},
		{"count 0", func(c *gcra.Charge) { c.Limit.Count = 0 }},
		{"count -1", func(c *gcra.Charge) { c.Limit.Count = -1 }},
		{"count smallest", func(c *gcra.Charge) { c.Limit.Count = math.MinInt64 }},
		{"count largest", func(c *gcra.Charge) { c.Limit.Count = math.MaxInt64 }},
		{"period 0", func(c *gcra.Charge) { c.Limit.Per = 0 }},
		{"period -1", func(c *gcra.Charge) { c.Limit.Per = -1 }},
		{"period smallest", func(c *gcra.Charge) { c.Limit.Per = math.MinInt64 }},
		{"period largest", func(c *gcra.Charge) { c.Limit.Per = math.MaxInt64 }},
		{"burst -1", func(c *gcra.Charge) { c.Limit.Burst = -1 }},
		{"burst largest", func(c *gcra.Charge) { c.Limit.Burst = math.MaxInt64 }},
		{"too fast", func(c *gcra.Charge) { c.Limit = gcra.PerSecond(1_000_001) }},
		{"too slow", func(c *gcra.Charge) { c.Limit = gcra.Limit{Count: 1, Per: 367 * 24 * time.Hour} }},
		{"cost -1", func(c *gcra.Charge) { c.Cost = -1 }},
		{"cost smallest", func(c *gcra.Charge) { c.Cost = math.MinInt64 }},
		{"MaxDelay -1", func(c *gcra.Charge) { c.MaxDelay = -1 }},
		{"MaxDelay too long", func(c *gcra.Charge) { c.MaxDelay = 367 * 24 * time.Hour }},
		{"MaxDelay largest", func(c *gcra.Charge) { c.MaxDelay = math.MaxInt64 }},
		{"MaxDebt -1", func(c *gcra.Charge) { c.MaxDebt = -1 }},
		{"MaxDebt largest", func(c *gcra.Charge) { c.MaxDebt = math.MaxInt64 }},
		{"MaxDebt too long to refill", func(c *gcra.Charge) { c.MaxDebt = 366 * 24 }},
		{"MaxWait -1", func(c *gcra.Charge) { c.MaxWait = -1 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := good
			bad.Subject = "bad"
			tt.change(&bad)

			for _, group := range [][]gcra.Charge{
				{bad},
				{good, bad},
				{bad, good},
				{{Subject: "other", Policy: "p", Limit: noRefill(10), Cost: 1}, bad, good},
			} {
				if allowed, err := b.Store.Take(t.Context(), group); err == nil || allowed {
					t.Errorf("Take(%+v): got %v, %v; want false and an error", bad, allowed, err)
				}

				for _, subject := range []string{"good", "bad", "other"} {
					if n := spent(t, b, subject, "p", 10); n != 0 {
						t.Errorf("after a charge with %s: %d spent of %q; want 0", tt.name, n, subject)
					}
				}
			}

			taken := good
			taken.Subject = "taken " + tt.name
			if _, err := b.Store.Take(t.Context(), []gcra.Charge{taken}); err != nil {
				t.Fatal(err)
			}

			if err := b.Store.Refund(t.Context(), []gcra.Charge{taken, bad}); err == nil {
				t.Errorf("Refund(%+v): got no error", bad)
			}
			if n := spent(t, b, taken.Subject, "p", 10); n != 1 {
				t.Errorf("after a refund beside a charge with %s: %d spent; want 1", tt.name, n)
			}
		})
	}
}

// An admission without charges passes.
func noCharges(t *testing.T, b Backend) {
	for _, charges := range [][]gcra.Charge{nil, {}} {
		if allowed, err := b.Store.Take(t.Context(), charges); err != nil || !allowed {
			t.Errorf("Take without charges: got %v, %v; want true, nil", allowed, err)
		}
		if err := b.Store.Refund(t.Context(), charges); err != nil {
			t.Errorf("Refund without charges: got %v; want nil", err)
		}
	}
}

// If the context is done, Take and Refund return its error and change nothing.
func contextDone(t *testing.T, b Backend) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()

	c := gcra.Charge{Subject: "s", Policy: "p", Limit: noRefill(10), Cost: 3}
	if _, err := gcra.Take(t.Context(), b.Store, c); err != nil {
		t.Fatal(err)
	}

	for _, ctx := range []context.Context{canceled, expired} {
		if _, err := b.Store.Take(ctx, []gcra.Charge{c}); !errors.Is(err, ctx.Err()) {
			t.Errorf("Take: got %v; want %v", err, ctx.Err())
		}
		if err := b.Store.Refund(ctx, []gcra.Charge{c}); !errors.Is(err, ctx.Err()) {
			t.Errorf("Refund: got %v; want %v", err, ctx.Err())
		}
	}

	if n := spent(t, b, "s", "p", 10); n != 3 {
		t.Errorf("got %d spent; want 3, as taken before", n)
	}
}
