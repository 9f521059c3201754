package gcratest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// CheckQuotas takes from quotas of any calendars and zones, that change under one name, in
// admissions of several charges. It refunds them and settles them, also into debt, in the
// period that was charged and in later ones. It fails if the store does not admit what the
// calendar on the wall says, to the tick. Only the results of denials may come from a
// denial cache if late is not 0: the period ends up to late later, and the units that are
// left are not checked. Nothing but advance may move the clock.
func CheckQuotas(t *rapid.T, store gcra.Store, now func() time.Time, advance func(time.Duration), late time.Duration) {
	w := &quotaWorld{store: store, now: now, advance: advance, late: late, used: map[string]int64{}}
	calendars := rapid.SliceOfN(AnyCalendar(), 1, 3).Draw(t, "calendars")
	last := time.Duration(0) // until a period ends

	t.Repeat(map[string]func(*rapid.T){
		"take": func(t *rapid.T) {
			charges := make([]gcra.Charge, rapid.IntRange(1, 3).Draw(t, "charges"))
			for i := range charges {
				charges[i] = gcra.Charge{
					Subject: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "subject"), Policy: "p",
					Limit:  gcra.Quota(rapid.Int64Range(1, 8).Draw(t, "quota"), rapid.SampledFrom(calendars).Draw(t, "calendar")),
					Cost:   rapid.Int64Range(1, 4).Draw(t, "cost"),
					Peek:   rapid.IntRange(0, 4).Draw(t, "peek") == 0,
					Shadow: rapid.IntRange(0, 5).Draw(t, "shadow") == 0,
				}
			}

			last = w.take(t, charges)
		},
		"refund": func(t *rapid.T) {
			if len(w.charges) > 0 {
				w.refund(t, rapid.IntRange(0, len(w.charges)-1).Draw(t, "which"))
			}
		},
		"settle": func(t *rapid.T) {
			if len(w.charges) > 0 {
				i := rapid.IntRange(0, len(w.charges)-1).Draw(t, "which")
				w.settle(t, i, rapid.Int64Range(0, 15).Draw(t, "cost"), rapid.Int64Range(0, 8).Draw(t, "debt"))
			}
		},
		"wait": func(t *rapid.T) {
			d := rapid.OneOf(
				rapid.Just(last), // to the end of a period
				rapid.Map(rapid.Int64Range(1, 3), func(n int64) time.Duration { return last - time.Duration(n)*Tick }),
				rapid.Map(rapid.Int64Range(0, 400*24), func(h int64) time.Duration { return time.Duration(h) * time.Hour }),
			).Draw(t, "time")

			if now().Add(d).Before(lastExact) {
				w.advance(max(d, 0))
				last = 0
			}
		},
	})
}

// lastExact bounds the clock: scripts are exact until 2053, and are sent the end of the year
// after the next one.
var lastExact = time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC)

// A quotaWorld is a store, its clock, and what every period of every bucket has
// admitted, by a count for each name that PeriodOf gives.
type quotaWorld struct {
	store   gcra.Store
	now     func() time.Time
	advance func(time.Duration)
	late    time.Duration
	used    map[string]int64
	charges []gcra.Charge // taken, to be refunded or settled perhaps
}

func bucketOf(c gcra.Charge, now time.Time) string {
	return c.Subject + " " + c.Policy + " " + PeriodOf(c.Limit.Calendar(), now)
}

func (w *quotaWorld) take(t *rapid.T, charges []gcra.Charge) (left time.Duration) {
	now := w.now()
	pending := map[string]int64{} // used by the earlier charges of the admission
	want := true

	results := make([]gcra.Result, len(charges))
	for i, c := range charges {
		bucket := bucketOf(c, now)
		used, n := w.used[bucket]+pending[bucket], c.Limit.Count
		cost := c.Cost
		switch {
		case c.Peek:
			cost = 0
		case c.Late:
			cost = min(cost, max(n+c.MaxDebt-used, 0))
		}

		r := gcra.Result{Allowed: cost == 0 || c.Late || used+cost <= n, Never: cost > n && !c.Late}
		r.Remaining = max(n-used, 0) // unless all are taken
		if r.Allowed {
			r.Taken = cost // the same
			pending[bucket] += cost
		} else {
			want = want && c.Shadow
		}
		results[i] = r
	}

	allowed, err := w.store.Take(t.Context(), charges)
	if err != nil || allowed != want {
		t.Fatalf("at %v, %+v: got %v, %v; want %v", now, charges, allowed, err, want)
	}

	for i, c := range charges {
		want := results[i]
		if allowed {
			want.Remaining = max(want.Remaining-want.Taken, 0)
			w.used[bucketOf(c, now)] += want.Taken
			if want.Taken > 0 && !c.Late {
				w.charges = append(w.charges, c)
			}
		} else {
			want.Taken = 0
		}

		end := EndOf(c.Limit.Calendar(), now)
		want.ResetAfter = end.Sub(now)
		if !want.Allowed && !want.Never {
			want.RetryAfter = want.ResetAfter
		}
		left = want.ResetAfter

		if !allowed && w.late > 0 && c.Result.ResetAfter <= end.Sub(now)+w.late && c.Period.Equal(end) {
			continue // a denial cache knows some buckets only, and takes others for unused
		}

		if c.Result != want || !c.Period.Equal(end) {
			t.Fatalf("at %v, charge %d, %+v: got %+v until %v; want %+v until %v", now, i, c, c.Result, c.Period, want, end)
		}
	}

	return left
}

func (w *quotaWorld) refund(t *rapid.T, i int) {
	c := w.charges[i]
	w.charges = append(w.charges[:i], w.charges[i+1:]...)
	w.giveBack(t, c)
}

// settle sets what a charge costs, as Settle of package middleware does: it gives back in
// the period of the charge, or takes what is left now and up to debt units more.
func (w *quotaWorld) settle(t *rapid.T, i int, cost, debt int64) {
	c := w.charges[i]
	w.charges[i].Cost = min(c.Cost, cost)
	if c.Cost -= cost; c.Cost > 0 {
		w.giveBack(t, c)
		return
	}
	if c.Cost == 0 {
		return
	}
	c.Cost, c.Shadow, c.Late, c.MaxDebt = -c.Cost, false, true, debt
	charges := []gcra.Charge{c}
	w.take(t, charges)
	w.charges[i].Cost += charges[0].Result.Taken
}

func (w *quotaWorld) giveBack(t *rapid.T, c gcra.Charge) {
	if c.Cost == 0 {
		return // settled
	}
	now := w.now()
	if bucket := bucketOf(c, now); c.Period.Equal(EndOf(c.Limit.Calendar(), now)) {
		w.used[bucket] -= c.Cost
	}
	if err := w.store.Refund(t.Context(), []gcra.Charge{c}); err != nil {
		t.Fatal(err)
	}
}
