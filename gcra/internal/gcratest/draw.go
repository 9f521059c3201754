package gcratest

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
)

func AnyLimit() *rapid.Generator[gcra.Limit] {
	return rapid.Custom(func(t *rapid.T) gcra.Limit {
		l := gcra.Limit{
			Count: rapid.Int64Range(1, 20).Draw(t, "count"),
			Per: rapid.OneOf(
				rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}),
				rapid.Custom(func(t *rapid.T) time.Duration {
					return time.Duration(rapid.Int64Range(int64(20*time.Microsecond), int64(30*24*time.Hour)).Draw(t, "per"))
				}),
			).Draw(t, "period"),
		}
		if rapid.Bool().Draw(t, "has burst") {
			l.Burst = rapid.Int64Range(1, 30).Draw(t, "burst")
		}
		if l.Validate() != nil {
			l.Burst = 1
		}
		return l
	})
}

// Pause draws how long to wait: nothing, whole intervals, or anything up to a
// little more than the bucket takes to refill.
func Pause(t *rapid.T, l gcra.Limit) time.Duration {
	unit := int64(l.Per) / l.Count / int64(Tick)
	return Tick * time.Duration(rapid.OneOf(
		rapid.Just(int64(0)),
		rapid.Map(rapid.Int64Range(0, 5), func(n int64) int64 { return n * unit }),
		rapid.Int64Range(0, unit*(Burst(l)+2)),
	).Draw(t, "pause"))
}

func CostUpTo(l gcra.Limit, slack int64) *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, Burst(l)+slack))
}

// AnyAdmission draws charges on a few buckets, among them often the same one
// twice.
func AnyAdmission(t *rapid.T, limits []gcra.Limit) []gcra.Charge {
	charges := make([]gcra.Charge, rapid.IntRange(1, 4).Draw(t, "charges"))
	for i := range charges {
		limit := rapid.SampledFrom(limits).Draw(t, "limit")
		c := gcra.Charge{
			Subject: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "subject"),
			Policy:  rapid.SampledFrom([]string{"p", "q"}).Draw(t, "policy"),
			Limit:   limit,
			Cost:    CostUpTo(limit, 2).Draw(t, "cost"),
			Shadow:  rapid.IntRange(0, 3).Draw(t, "shadow") == 0,
		}
		if rapid.Bool().Draw(t, "queues") {
			c.MaxDelay = Pause(t, limit)
			c.MaxWait = Pause(t, limit)
		}
		charges[i] = c
	}
	// One bucket under limits that differ within one admission is a case that
	// the contract has a table for, and is nobody's use.
	for i := range charges {
		for _, e := range charges[:i] {
			if c := &charges[i]; c.Subject == e.Subject && c.Policy == e.Policy {
				c.Limit, c.MaxDelay = e.Limit, e.MaxDelay
			}
		}
	}
	return charges
}

// TakeOrRefund is Take or Refund, which allows what it gives back.
func TakeOrRefund(ctx context.Context, s gcra.Store, charges []gcra.Charge, refund bool) (allowed bool, err error) {
	if refund {
		return true, s.Refund(ctx, charges)
	}
	return s.Take(ctx, charges)
}

// CheckSame makes the same call to the law and to a store.
func CheckSame(t *rapid.T, l, s gcra.Store, charges []gcra.Charge, refund bool) {
	want, got := slices.Clone(charges), slices.Clone(charges)
	wanted, err := TakeOrRefund(t.Context(), l, want, refund)
	if err != nil {
		t.Fatal(err)
	}
	if allowed, err := TakeOrRefund(t.Context(), s, got, refund); err != nil || allowed != wanted {
		t.Fatalf("%+v: got %v, %v; want %v, nil", charges, allowed, err, wanted)
	}
	for i := range got {
		if got[i].Result != want[i].Result {
			t.Fatalf("charge %d of %d, refund %v, %+v:\ngot  %+v\nwant %+v", i, len(got), refund, charges[i], got[i].Result, want[i].Result)
		}
	}
}

// MustTake takes the charges and returns them with their results.
func MustTake(t testing.TB, s gcra.Store, charges ...gcra.Charge) []gcra.Charge {
	t.Helper()
	if _, err := s.Take(context.Background(), charges); err != nil {
		t.Fatalf("Take(%+v): %v", charges, err)
	}
	return charges
}
