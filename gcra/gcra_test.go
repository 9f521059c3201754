package gcra_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/storetest"
)

// The oracle of the tests below keeps the contract itself, but for what is not
// the law's: errors, and callers at the same time.
func TestLawContract(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		switch name := t.Name()[len("TestLawContract/"):]; name {
		case "invalid_charges", "context_done", "exactly_the_burst_passes", "groups_under_contention", "bound_over_any_window":
			t.Skip("not the law's")
		}
		l := newLaw()
		return storetest.Backend{Store: l, Advance: func(d time.Duration) { l.now += int64(d / tick) }, Exact: true}
	})
}

// What the property tests draw.

func anyLimit() *rapid.Generator[gcra.Limit] {
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

// pause draws how long to wait: nothing, whole intervals, or anything up to a
// little more than the bucket takes to refill.
func pause(t *rapid.T, l gcra.Limit) time.Duration {
	unit := int64(l.Per) / l.Count / int64(tick)
	return tick * time.Duration(rapid.OneOf(
		rapid.Just(int64(0)),
		rapid.Map(rapid.Int64Range(0, 5), func(n int64) int64 { return n * unit }),
		rapid.Int64Range(0, unit*(burst(l)+2)),
	).Draw(t, "pause"))
}

func costUpTo(l gcra.Limit, slack int64) *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, burst(l)+slack))
}

// bench is a Memory on a clock of its own.
type bench struct {
	clock
	*gcra.Memory
}

func newBench() *bench {
	b := new(bench)
	b.Memory = &gcra.Memory{Now: b.now}
	return b
}

func (b *bench) take(t *rapid.T, c gcra.Charge) gcra.Result {
	r, err := gcra.Take(t.Context(), b, c)
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	return r
}

// Whatever comes in whatever order, also under limits that change, Memory
// answers as the law does.
func TestMemoryObeysTheLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SliceOfN(anyLimit(), 1, 3).Draw(t, "limits")
		l, m := newLaw(), newBench()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			d := pause(t, limits[0])
			l.now += int64(d / tick)
			m.advance(d)
			checkSame(t, l, m, anyAdmission(t, limits), rapid.IntRange(0, 5).Draw(t, "refund") == 0)
		}
	})
}

// anyAdmission draws charges on a few buckets, among them often the same one
// twice.
func anyAdmission(t *rapid.T, limits []gcra.Limit) []gcra.Charge {
	charges := make([]gcra.Charge, rapid.IntRange(1, 4).Draw(t, "charges"))
	for i := range charges {
		limit := rapid.SampledFrom(limits).Draw(t, "limit")
		c := gcra.Charge{
			Subject: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "subject"),
			Policy:  rapid.SampledFrom([]string{"p", "q"}).Draw(t, "policy"),
			Limit:   limit,
			Cost:    costUpTo(limit, 2).Draw(t, "cost"),
			Shadow:  rapid.IntRange(0, 3).Draw(t, "shadow") == 0,
		}
		if rapid.Bool().Draw(t, "queues") {
			c.MaxDelay = pause(t, limit)
			c.MaxWait = pause(t, limit)
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

// takeOrRefund is Take or Refund, which allows what it gives back.
func takeOrRefund(ctx context.Context, s gcra.Store, charges []gcra.Charge, refund bool) (allowed bool, err error) {
	if refund {
		return true, s.Refund(ctx, charges)
	}
	return s.Take(ctx, charges)
}

// checkSame makes the same call to the law and to a store.
func checkSame(t *rapid.T, l, s gcra.Store, charges []gcra.Charge, refund bool) {
	want, got := slices.Clone(charges), slices.Clone(charges)
	wanted, err := takeOrRefund(t.Context(), l, want, refund)
	if err != nil {
		t.Fatal(err)
	}
	if allowed, err := takeOrRefund(t.Context(), s, got, refund); err != nil || allowed != wanted {
		t.Fatalf("%+v: got %v, %v; want %v, nil", charges, allowed, err, wanted)
	}
	for i := range got {
		if got[i].Result != want[i].Result {
			t.Fatalf("charge %d of %d, refund %v, %+v:\ngot  %+v\nwant %+v", i, len(got), refund, charges[i], got[i].Result, want[i].Result)
		}
	}
}
