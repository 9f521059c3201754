package share_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/share"
)

func drawLimit(t *rapid.T) gcra.Limit {
	if rapid.Bool().Draw(t, "quota") {
		return gcra.Quota(rapid.Int64Range(1, 100).Draw(t, "quota of"), gcra.Daily)
	}
	return gcra.Limit{
		Count: rapid.Int64Range(1, 100).Draw(t, "count"),
		Per:   time.Duration(rapid.Int64Range(1, 1000).Draw(t, "seconds")) * time.Second,
		Burst: rapid.Int64Range(1, 100).Draw(t, "burst"),
	}
}

// In one moment n servers allow at most the larger of the limit and n requests. Of what
// one server allows everything can be refunded, in parts.
func TestSharesTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, n := drawLimit(t), rapid.IntRange(1, 20).Draw(t, "servers")
		now := time.Unix(1_800_000_000, 0)
		memory := gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})
		s := share.Store{Store: memory, Instances: n}
		taken, largest := int64(0), int64(0)
		charge := gcra.Charge{Subject: "s", Policy: "p", Limit: l}
		for range 100 {
			charge.Cost = rapid.Int64Range(1, l.Capacity()+1).Draw(t, "cost")
			r, err := gcra.Take(t.Context(), s, charge)
			if err != nil {
				t.Fatal(err)
			}

			if r.Never != (charge.Cost > l.Capacity()) {
				t.Fatalf("%v, cost %d: got Never %v", l, charge.Cost, r.Never)
			}
			if r.Allowed {
				taken, largest = taken+charge.Cost, max(largest, charge.Cost)
			}
		}

		if bound := max(l.Capacity(), int64(n)*largest); int64(n)*taken > bound {
			t.Fatalf("%v: each of %d servers took %d units in one moment; want at most %d together", l, n, taken, bound)
		}

		for taken > 0 {
			charge.Cost = rapid.Int64Range(1, taken).Draw(t, "refund")
			if err := s.Refund(t.Context(), []gcra.Charge{charge}); err != nil {
				t.Fatal(err)
			}
			taken -= charge.Cost
		}

		full, err := gcra.Peek(t.Context(), s, gcra.Charge{Subject: "s", Policy: "p", Limit: l})
		if err != nil || full.Remaining != max(l.Capacity()/int64(n), full.Remaining) || !l.IsQuota() && full.ResetAfter != 0 {
			t.Fatalf("%v, all refunded: got %+v, %v; want a full share", l, full, err)
		}
	})
}

// What n servers take late in one moment is at most the limit and its debt together. All of it can be
// refunded but what is less than a unit of each.
func TestLateSharesTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, n := drawLimit(t), rapid.IntRange(1, 20).Draw(t, "servers")
		debt := rapid.Int64Range(0, 50).Draw(t, "debt")
		now := time.Unix(1_800_000_000, 0)
		s := share.Store{Store: gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }}), Instances: n}
		c := gcra.Charge{Subject: "s", Policy: "p", Limit: l, MaxDebt: debt, Late: true}

		taken := int64(0)
		for range 5 {
			c.Cost = rapid.Int64Range(1, 2*(l.Capacity()+debt)).Draw(t, "cost")
			r, err := gcra.Take(t.Context(), s, c)
			if err != nil || !r.Allowed || r.Delay != 0 || r.Taken > c.Cost {
				t.Fatalf("%v, debt %d, cost %d: got %+v, %v", l, debt, c.Cost, r, err)
			}
			taken += r.Taken
		}

		if bound := l.Capacity() + debt; int64(n)*taken > bound {
			t.Fatalf("%v, debt %d: each of %d servers took %d units; want at most %d together", l, debt, n, taken, bound)
		}
		if c.Cost = taken; taken == 0 {
			return
		}

		if err := s.Refund(t.Context(), []gcra.Charge{c}); err != nil {
			t.Fatal(err)
		}
		if full, err := gcra.Peek(t.Context(), s, c); err != nil || full.ResetAfter >= time.Duration(n)*l.Interval() && !l.IsQuota() {
			t.Fatalf("%v, all refunded: got %+v, %v; want a full share", l, full, err)
		}
	})
}

// Remaining units of a share pass.
func TestRemainingPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_800_000_000, 0)
		s := share.Store{Store: gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }}), Instances: rapid.IntRange(1, 20).Draw(t, "servers")}
		charge := gcra.Charge{Subject: "s", Policy: "p", Limit: drawLimit(t)}
		for range 10 {
			charge.Cost = rapid.Int64Range(1, charge.Limit.Capacity()).Draw(t, "cost")
			r, err := gcra.Take(t.Context(), s, charge)
			if err != nil {
				t.Fatal(err)
			}

			if charge.Cost = r.Remaining; charge.Cost == 0 {
				continue
			}
			if again, err := gcra.Take(t.Context(), s, charge); err != nil || !again.Allowed {
				t.Fatalf("%v, %d remaining: got %+v, %v; want them to pass", charge.Limit, charge.Cost, again, err)
			}
		}
	})
}

// Limits at the edges of what is valid have a share that is valid.
func TestSharesAreValid(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, l := range []gcra.Limit{
		{Count: 1, Per: year, Burst: 1}, {Count: 200, Per: 200 * year, Burst: 1}, {Count: 1, Per: 24 * time.Hour, Burst: 366},
		{Count: 1_000_000, Per: time.Second, Burst: 1e13}, {Count: 3, Per: math.MaxInt64, Burst: 1},
		gcra.Quota(1e10, gcra.Hourly), gcra.Quota(1, gcra.Yearly),
	} {
		if l.Validate() != nil {
			continue
		}

		for _, n := range []int{2, 10, 1_000_000} {
			s := share.Store{Store: gcra.NewMemory(), Instances: n}
			for _, cost := range []int64{0, 1, l.Capacity()} {
				charge := gcra.Charge{Subject: "s", Policy: "p", Limit: l, Cost: cost}
				if _, err := gcra.Take(t.Context(), s, charge); err != nil {
					t.Errorf("%v, cost %d, %d servers: %v", l, cost, n, err)
				}
				charge.Cost = math.MaxInt64
				if err := s.Refund(t.Context(), []gcra.Charge{charge}); err != nil {
					t.Errorf("%v, reset, %d servers: %v", l, n, err)
				}
			}
		}
	}
}
