package gcratest

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// AnyLimit generates valid limits with a burst of at most 30.
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

// AnyQuota generates quotas of at most 30 units.
func AnyQuota() *rapid.Generator[gcra.Limit] {
	return rapid.Custom(func(t *rapid.T) gcra.Limit {
		return gcra.Quota(rapid.Int64Range(1, 30).Draw(t, "quota"), AnyCalendar().Draw(t, "calendar"))
	})
}

// Pause draws a time to wait: none, whole intervals, or up to a little more than
// the bucket takes to refill. For a quota these are hours up to two months.
func Pause(t *rapid.T, l gcra.Limit) time.Duration {
	if l.IsQuota() {
		return time.Duration(rapid.Int64Range(0, 60*24).Draw(t, "hours")) * time.Hour
	}
	unit := int64(l.Per) / l.Count / int64(Tick)
	return Tick * time.Duration(rapid.OneOf(
		rapid.Just(int64(0)),
		rapid.Map(rapid.Int64Range(0, 5), func(n int64) int64 { return n * unit }),
		rapid.Int64Range(0, unit*(l.Capacity()+2)),
	).Draw(t, "pause"))
}

// CostUpTo generates costs of up to the burst and beyond.
func CostUpTo(l gcra.Limit, beyond int64) *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(1, min(3, l.Capacity()+beyond)), rapid.Int64Range(1, l.Capacity()+beyond))
}

// AnyAdmission draws charges on a few buckets, often several on one, of limits with and
// without room for debt. One in four is a settlement or gives debt back: see intoDebt.
func AnyAdmission(t *rapid.T, limits []gcra.Limit) []gcra.Charge {
	charges := make([]gcra.Charge, rapid.IntRange(1, 4).Draw(t, "charges"))
	for i := range charges {
		limit := rapid.SampledFrom(limits).Draw(t, "limit")
		c := gcra.Charge{
			Subject: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "subject"),
			Policy:  rapid.SampledFrom([]string{"p", "q"}).Draw(t, "policy"),
			Limit:   limit,
			Cost:    CostUpTo(limit, 2).Draw(t, "cost"),
			Peek:    rapid.IntRange(0, 5).Draw(t, "peek") == 0,
			Shadow:  rapid.IntRange(0, 3).Draw(t, "shadow") == 0,
		}

		if !limit.IsQuota() && rapid.Bool().Draw(t, "queues") {
			c.MaxDelay = min(Pause(t, limit), gcra.MaxDelay)
			c.MaxWait = Pause(t, limit)
		}

		if rapid.IntRange(0, 3).Draw(t, "has debt") == 0 {
			c.MaxDebt = AnyDebt(limit).Draw(t, "debt")
		}

		if rapid.IntRange(0, 3).Draw(t, "late") == 0 {
			c.Late, c.Cost = true, rapid.Int64Range(0, limit.Capacity()+25).Draw(t, "late cost")
		}

		charges[i] = c
	}

	// The contract has a table for one bucket under two limits in one admission.
	for i := range charges {
		for _, e := range charges[:i] {
			if c := &charges[i]; c.Subject == e.Subject && c.Policy == e.Policy {
				c.Limit, c.MaxDelay, c.MaxWait, c.MaxDebt = e.Limit, e.MaxDelay, e.MaxWait, e.MaxDebt
			}
		}
	}
	return charges
}

// AnyDebt generates debts of up to 20 units that the limit has room for.
func AnyDebt(l gcra.Limit) *rapid.Generator[int64] {
	most := int64(20)
	if !l.IsQuota() {
		most = min(most, int64(gcra.MaxDelay/l.Interval())-l.Capacity())
	}
	return rapid.Int64Range(0, most)
}

// TakeOrRefund calls Take or Refund. A refund is always allowed.
func TakeOrRefund(ctx context.Context, s gcra.Store, charges []gcra.Charge, refund bool) (allowed bool, err error) {
	if refund {
		return true, s.Refund(ctx, charges)
	}
	return s.Take(ctx, charges)
}

// CheckSame draws an admission or a refund, often one of an earlier admission, and fails
// the test if the results of the store differ from the model's.
func CheckSame(t *rapid.T, m *Model, s gcra.Store, limits []gcra.Limit) {
	charges := AnyAdmission(t, limits)
	refund := rapid.IntRange(0, 5).Draw(t, "refund") == 0
	if refund && len(m.taken) > 0 && rapid.Bool().Draw(t, "of earlier") {
		charges = rapid.SampledFrom(m.taken).Draw(t, "admission")
	}

	want, got := slices.Clone(charges), slices.Clone(charges)
	wantAllowed, err := TakeOrRefund(t.Context(), m, want, refund)
	if err != nil {
		t.Fatal(err)
	}

	if allowed, err := TakeOrRefund(t.Context(), s, got, refund); err != nil || allowed != wantAllowed {
		t.Fatalf("%+v: got %v, %v; want %v, nil", charges, allowed, err, wantAllowed)
	}

	for i := range got {
		if got[i].Result != want[i].Result || !got[i].Period.Equal(want[i].Period) {
			t.Fatalf("charge %d of %d, refund %v, %+v:\ngot  %+v until %v\nwant %+v until %v",
				i, len(got), refund, charges[i], got[i].Result, got[i].Period, want[i].Result, want[i].Period)
		}
	}

	if wantAllowed && !refund {
		m.taken = append(m.taken, got)
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
