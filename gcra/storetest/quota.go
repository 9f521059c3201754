package storetest

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/iface"
)

// keepsQuotas reports whether the store keeps quotas. One that does not says so.
func keepsQuotas(b Backend) bool {
	s, ok := b.Store.(iface.LimitChecker)
	return !ok || s.CheckLimit(gcra.Quota(1, gcra.Yearly)) == nil
}

// noQuotas is for a store that does not keep quotas: one is an error, also beside other
// charges, and nothing is taken.
func noQuotas(t *testing.T, b Backend) {
	rate := gcra.Charge{Subject: "s", Policy: "p", Limit: noRefill(10), Cost: 1}
	charges := []gcra.Charge{rate, {Subject: "s", Policy: "q", Limit: gcra.Quota(10, gcra.Monthly), Cost: 1}}
	if allowed, err := b.Store.Take(t.Context(), charges); err == nil || allowed {
		t.Errorf("Take with a quota: got %v, %v; want false and an error", allowed, err)
	}
	if err := b.Store.Refund(t.Context(), charges[1:]); err == nil {
		t.Error("Refund with a quota: got no error")
	}
	if n := spent(t, b, "s", "p", 10); n != 0 {
		t.Errorf("got %d spent beside a quota; want 0", n)
	}
}

// use charges a quota and checks what the result says of it.
func (b *Backend) use(t *testing.T, c gcra.Charge, allowed bool, remaining int64) gcra.Charge {
	t.Helper()
	charges := []gcra.Charge{c}
	if ok, err := b.Store.Take(t.Context(), charges); err != nil || ok != allowed {
		t.Fatalf("Take(%+v): got %v, %v; want %v", c, ok, err, allowed)
	}
	c = charges[0]
	if r := c.Result; r.Remaining != remaining || r.Delay != 0 || r.ResetAfter <= 0 || c.Period.IsZero() ||
		(r.RetryAfter > 0) != (!allowed && !r.Never) || r.RetryAfter != 0 && r.RetryAfter != r.ResetAfter {
		t.Fatalf("%d of %v: got %+v until %v; want %d remaining, and all durations until the period ends", c.Cost, c.Limit, r, c.Period, remaining)
	}
	return c
}

// give refunds a charge.
func (b *Backend) give(t *testing.T, c gcra.Charge) {
	t.Helper()
	if err := b.Store.Refund(t.Context(), []gcra.Charge{c}); err != nil {
		t.Fatal(err)
	}
}

// ofYear is a charge on a quota; of a cost of 0 it peeks.
func ofYear(n, cost int64) gcra.Charge {
	return gcra.Charge{Subject: "s", Policy: "p", Limit: gcra.Quota(n, gcra.Yearly), Cost: cost, Peek: cost == 0}
}

// A quota in one period: all of it may pass at once, and then nothing.
func quotas(t *testing.T, b Backend) {
	b.use(t, ofYear(5, 0), true, 5)
	b.use(t, ofYear(5, 3), true, 2)
	b.use(t, ofYear(5, 3), false, 2)
	b.use(t, ofYear(5, 2), true, 0)
	b.use(t, ofYear(5, 1), false, 0)
	b.use(t, ofYear(5, 0), true, 0)
	if c := b.use(t, ofYear(5, 6), false, 0); !c.Result.Never {
		t.Errorf("6 of 5: got %+v; want Never", c.Result)
	}

	// Another quota applies at once and forgets nothing, nor does the return to the first.
	b.use(t, ofYear(3, 1), false, 0)
	b.use(t, ofYear(8, 1), true, 2)
	b.use(t, ofYear(5, 1), false, 0)
	b.use(t, ofYear(7, 1), true, 0)

	// A refund gives back, never more than was used.
	b.give(t, ofYear(7, 2))
	b.use(t, ofYear(7, 1), true, 1)
	b.give(t, ofYear(7, 100))
	b.use(t, ofYear(7, 1), true, 6)
	if err := gcra.Reset(t.Context(), b.Store, ofYear(7, 0)); err != nil {
		t.Fatal(err)
	}
	b.use(t, ofYear(7, 7), true, 0)

	// A late charge takes what is left with its debt.
	b.give(t, ofYear(7, 5))
	overdrawn := ofYear(7, 9)
	overdrawn.Late, overdrawn.MaxDebt = true, 3
	if c := b.use(t, overdrawn, true, 0); c.Result.Taken != 8 {
		t.Errorf("9 of 5 with a debt of 3: got %+v; want 8 taken", c.Result)
	}
	b.use(t, ofYear(7, 1), false, 0)
	b.give(t, ofYear(7, 3))
	b.use(t, ofYear(7, 1), false, 0)

	// A refund in a period that is over does nothing.
	late := b.use(t, ofYear(8, 1), true, 0)
	late.Period = late.Period.AddDate(-1, 0, 0)
	b.give(t, late)
	b.use(t, ofYear(8, 1), false, 0)

	// The largest quota is exact.
	const most = 100_000_000_000_000
	large := gcra.Charge{Subject: "large", Policy: "p", Limit: gcra.Quota(most, gcra.Yearly), Cost: most - 1}
	b.use(t, large, true, 1)
	b.use(t, large, false, 1)
	large.Cost = 1
	b.use(t, large, true, 0)
	b.use(t, large, false, 0)
}

// A rate and quotas under one policy name are buckets of their own, whatever their
// calendars are, and also if another policy's name looks like a calendar's.
func quotasApart(t *testing.T, b Backend) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}

	var charges []gcra.Charge
	for _, name := range []string{"p", "p~month", "p~month15", "p~day.Europe/Berlin", "p~"} {
		for _, l := range []gcra.Limit{
			noRefill(1000), gcra.Quota(1000, gcra.Hourly), gcra.Quota(1000, gcra.Daily), gcra.Quota(1000, gcra.Daily.In(berlin)),
			gcra.Quota(1000, gcra.Weekly), gcra.Quota(1000, gcra.Weekly.From(7)), gcra.Quota(1000, gcra.Monthly),
			gcra.Quota(1000, gcra.Monthly.From(15)), gcra.Quota(1000, gcra.Monthly.From(15).In(berlin)), gcra.Quota(1000, gcra.Yearly),
		} {
			charges = append(charges, gcra.Charge{Subject: "s", Policy: name, Limit: l, Cost: int64(len(charges) + 1)})
		}
	}

	for range 2 {
		if allowed, err := b.Store.Take(t.Context(), charges); err != nil || !allowed {
			t.Fatalf("got %v, %v; want all allowed", allowed, err)
		}
	}

	for _, c := range charges {
		if c.Result.Remaining != 1000-2*c.Cost {
			t.Errorf("%s, %v: got %d remaining; want %d", c.Policy, c.Limit, c.Result.Remaining, 1000-2*c.Cost)
		}
	}
}

// Rates and quotas are taken together or not at all. A shadow denies nothing.
func quotasInGroups(t *testing.T, b Backend) {
	rate := gcra.Charge{Subject: "s", Policy: "rate", Limit: noRefill(3), Cost: 1}
	take := func(want bool, charges ...gcra.Charge) {
		t.Helper()
		if allowed, err := b.Store.Take(t.Context(), charges); err != nil || allowed != want {
			t.Fatalf("got %v, %v; want %v: %+v", allowed, err, want, charges)
		}
	}

	take(true, rate, ofYear(4, 2))
	take(true, ofYear(4, 2), rate)
	take(false, rate, ofYear(4, 1))
	take(false, ofYear(4, 1), rate)

	if n := spent(t, b, "s", "rate", 3); n != 2 {
		t.Errorf("got %d spent of the rate; want 2, as a denied quota takes nothing", n)
	}

	shadow := ofYear(4, 1)
	shadow.Shadow = true
	take(true, shadow, rate)
	take(false, ofYear(5, 1), rate)
	b.use(t, ofYear(5, 0), true, 1)

	// Twice in one admission.
	take(false, ofYear(5, 1), ofYear(5, 1))
	take(true, ofYear(6, 1), ofYear(6, 1))
	b.use(t, ofYear(6, 0), true, 0)
}

// A quota is given back when the period ends, and not a tick earlier.
func quotaPeriods(t *testing.T, b Backend) {
	for _, calendar := range []gcra.Calendar{gcra.Hourly, gcra.Daily, gcra.Weekly.From(7), gcra.Monthly.From(15), gcra.Yearly} {
		c := gcra.Charge{Subject: string(calendar), Policy: "p", Limit: gcra.Quota(5, calendar), Cost: 1}
		first := b.use(t, c, true, 4)

		b.Advance(first.Result.ResetAfter - tick)
		last := b.use(t, c, true, 3)
		if last.Result.ResetAfter != tick || !last.Period.Equal(first.Period) {
			t.Errorf("a tick before %v ends: got %+v until %v; want the same period", first.Period, last.Result, last.Period)
		}

		b.Advance(tick)
		c.Cost = 5
		next := b.use(t, c, true, 0)
		if !next.Period.After(first.Period) || !next.Period.Equal(first.Period.Add(next.Result.ResetAfter)) {
			t.Errorf("after %v: got %v, %v from now; want the next period", first.Period, next.Period, next.Result.ResetAfter)
		}

		// A refund gives back in the period that was charged, and not in a later one.
		b.give(t, first)
		b.use(t, c, false, 0)
		b.give(t, next)
		b.use(t, c, true, 0)
	}
}

// A clock that goes back does not bring a period back that is over: the one that has
// begun goes on. A clock that was ahead by several periods denies until the present one
// ends.
func quotasWhileTheClockGoesBack(t *testing.T, b Backend) {
	if b.Remembers {
		t.Skip(remembersDenials)
	}
	for _, calendar := range []gcra.Calendar{gcra.Hourly, gcra.Daily, gcra.Weekly.From(7), gcra.Monthly.From(15), gcra.Yearly} {
		c := gcra.Charge{Subject: string(calendar), Policy: "p", Limit: gcra.Quota(5, calendar), Cost: 5}
		first := b.use(t, c, true, 0)
		b.Advance(first.Result.ResetAfter)
		next := b.use(t, c, true, 0)

		b.Advance(-2 * tick)
		c.Cost = 1
		again := b.use(t, c, false, 0)
		if !again.Period.Equal(next.Period) || again.Result.ResetAfter != next.Result.ResetAfter+2*tick {
			t.Errorf("two ticks before %v: got %+v until %v; want the period until %v to go on", first.Period, again.Result, again.Period, next.Period)
		}
		b.Advance(2 * tick)
		b.use(t, c, false, 0)

		// Also if all of it was given back.
		b.give(t, next)
		b.Advance(-2 * tick)
		if given := b.use(t, c, true, 4); !given.Period.Equal(next.Period) {
			t.Errorf("two ticks before %v, all given back: got %+v until %v; want the period until %v to go on",
				first.Period, given.Result, given.Period, next.Period)
		}
		b.Advance(2 * tick)
		b.use(t, c, true, 3)

		b.Advance(4 * next.Result.ResetAfter)
		b.use(t, c, true, 4)
		b.Advance(-4 * next.Result.ResetAfter)
		present := b.use(t, c, false, 0)
		b.Advance(present.Result.ResetAfter)
		b.use(t, c, true, 4)
	}
}

// A quota with what it has no room for is an error.
func invalidQuotas(t *testing.T, b Backend) {
	for _, c := range []gcra.Charge{
		ofYear(0, 1), ofYear(-1, 1), ofYear(100_000_000_000_001, 1), ofYear(1, -1),
		{Limit: gcra.Quota(1, "")},
		{Limit: gcra.Quota(1, gcra.Monthly.From(29))},
		{Limit: gcra.Quota(1, gcra.Daily.In(time.FixedZone("Europe/Atlantis", 0)))},
		{Limit: gcra.Quota(100_000_000_000_000, gcra.Yearly), MaxDebt: 1},
		{Limit: gcra.Quota(1, gcra.Daily), MaxDelay: time.Second, MaxWait: time.Second},
	} {
		c.Subject, c.Policy = "invalid", "p"
		if allowed, err := b.Store.Take(t.Context(), []gcra.Charge{ofYear(10, 1), c}); err == nil || allowed {
			t.Errorf("%+v: got %v, %v; want an error", c, allowed, err)
		}
	}
	b.use(t, ofYear(10, 0), true, 10)
}
