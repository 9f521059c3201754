package gcratest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// CheckQuotas takes from quotas of any calendars and zones, that change under one name, in
// admissions of several charges, with refunds in the period that was charged and in later
// ones. It fails if the store does not admit what the calendar on the wall says, to the
// tick. Nothing but advance may move the clock.
func CheckQuotas(t *rapid.T, store gcra.Store, now func() time.Time, advance func(time.Duration)) {
	w := &quotaWorld{store: store, now: now, advance: advance, used: map[string]int64{}}
	calendars := rapid.SliceOfN(AnyCalendar(), 1, 3).Draw(t, "calendars")
	last := time.Duration(0) // until a period ends
	t.Repeat(map[string]func(*rapid.T){
		"take": func(t *rapid.T) {
			charges := make([]gcra.Charge, rapid.IntRange(1, 3).Draw(t, "charges"))
			for i := range charges {
				charges[i] = gcra.Charge{
					Subject: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "subject"), Policy: "p",
					Limit:  gcra.Quota(rapid.Int64Range(1, 8).Draw(t, "quota"), rapid.SampledFrom(calendars).Draw(t, "calendar")),
					Cost:   rapid.Int64Range(0, 4).Draw(t, "cost"),
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
		"wait": func(t *rapid.T) {
			d := rapid.OneOf(
				rapid.Just(last), // to the end of a period
				rapid.Map(rapid.Int64Range(1, 3), func(n int64) time.Duration { return last - time.Duration(n)*Tick }),
				rapid.Map(rapid.Int64Range(0, 400*24), func(h int64) time.Duration { return time.Duration(h) * time.Hour }),
			).Draw(t, "time")
			w.advance(max(d, 0))
			last = 0
		},
	})
}

// A quotaWorld is a store, its clock, and what every period of every bucket has
// admitted, by a count for each name that PeriodOf gives.
type quotaWorld struct {
	store   gcra.Store
	now     func() time.Time
	advance func(time.Duration)
	used    map[string]int64
	charges []gcra.Charge // taken, to be refunded perhaps
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
		r := gcra.Result{Allowed: c.Cost == 0 || used+c.Cost <= n, Never: c.Cost > n}
		r.Remaining = max(n-used, 0) // unless all are taken
		if r.Allowed {
			pending[bucket] += c.Cost
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
		if allowed && want.Allowed {
			want.Remaining = max(want.Remaining-c.Cost, 0)
			w.used[bucketOf(c, now)] += c.Cost
			if c.Cost > 0 {
				w.charges = append(w.charges, c)
			}
		}
		end := EndOf(c.Limit.Calendar(), now)
		want.ResetAfter = end.Sub(now)
		if !want.Allowed && !want.Never {
			want.RetryAfter = want.ResetAfter
		}
		if c.Result != want || !c.Period.Equal(end) {
			t.Fatalf("at %v, charge %d, %+v: got %+v until %v; want %+v until %v", now, i, c, c.Result, c.Period, want, end)
		}
		left = want.ResetAfter
	}
	return left
}

func (w *quotaWorld) refund(t *rapid.T, i int) {
	c := w.charges[i]
	w.charges = append(w.charges[:i], w.charges[i+1:]...)
	now := w.now()
	if bucket := bucketOf(c, now); c.Period.Equal(EndOf(c.Limit.Calendar(), now)) {
		w.used[bucket] -= c.Cost
	}
	if err := w.store.Refund(t.Context(), []gcra.Charge{c}); err != nil {
		t.Fatal(err)
	}
}
