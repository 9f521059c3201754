package storetest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// table is a sequence of steps on one store.
type table struct {
	name  string
	limit gcra.Limit // of every charge without one
	steps []step
}

// step is one call of Take or Refund and its results.
type step struct {
	at     time.Duration // since the start of the table; may go back
	ask    []gcra.Charge
	want   []gcra.Result
	refund bool
}

// slow is the factor on durations for a store whose time passes by itself. A second
// in a table becomes ten minutes, so that no unit refills on a slow machine.
const slow = 600

// run runs the table on a store. timeless means: up to the first step at which time
// has passed, and without comparing durations.
func (tt *table) run(t *testing.T, b Backend, timeless bool) {
	if b.Remembers && !slices.IsSortedFunc(tt.steps, func(a, b step) int { return cmp.Compare(a.at, b.at) }) {
		t.Skip(remembersDenials)
	}

	scale := time.Duration(1)
	if !b.Exact {
		scale = slow
	}

	start := time.Now()
	at := time.Duration(0)
	for i, s := range tt.steps {
		if s.at > 0 && timeless {
			return // the algorithm decides what refills
		}

		if s.at != at {
			b.Advance((s.at - at) * scale)
			at = s.at
		}

		ask := slices.Clone(s.ask)
		for j := range ask {
			c := &ask[j]
			if c.Limit == (gcra.Limit{}) {
				c.Limit = tt.limit
			}
			if b.Algorithm != GCRA {
				c.Limit = windowOf(c.Limit)
			}
			if c.Policy == "" {
				c.Policy = "p"
			}

			c.Limit.Per *= scale
			c.MaxDelay *= scale
			c.MaxWait *= scale
		}

		var allowed bool
		var err error
		if s.refund {
			err = b.Store.Refund(t.Context(), ask)
		} else {
			allowed, err = b.Store.Take(t.Context(), ask)
		}
		if err != nil {
			t.Fatalf("step %d, at %v, ask %v: %v", i, s.at, s.ask, err)
		}

		if want := !s.refund && admits(ask); allowed != want {
			t.Errorf("step %d, at %v, ask %+v: Take got %v; want %v, as its Results that are not shadows say", i, s.at, ask, allowed, want)
		}

		slack := time.Duration(0)
		if !b.Exact {
			slack = time.Since(start) + time.Millisecond
		}

		for j, c := range ask {
			want := s.want[j]
			if allowed && want.Allowed && !c.Peek && !c.Late {
				want.Taken = max(c.Cost, 1)
			}
			want.RetryAfter *= scale
			want.ResetAfter *= scale
			want.Delay *= scale

			got := c.Result
			if timeless {
				got, want = signs(got), signs(want)
			}

			if !b.near(got, want, slack) {
				t.Errorf("step %d, at %v (times %d), charge %d %+v:\ngot  %+v\nwant %+v (durations off by at most %v)",
					i, s.at, scale, j, c, got, want, slack)
			}
		}

		if t.Failed() {
			return // later steps depend on this one
		}
	}
}

// admits reports whether every charge that is not a shadow is allowed.
func admits(charges []gcra.Charge) bool {
	return !slices.ContainsFunc(charges, func(c gcra.Charge) bool { return !c.Result.Allowed && !c.Shadow })
}

// windowOf returns the limit of the same rate with the burst as its count.
func windowOf(l gcra.Limit) gcra.Limit {
	if l.Burst == 0 || l.Burst == l.Count {
		return l
	}
	return gcra.Limit{Count: l.Burst, Per: l.Per * time.Duration(l.Burst) / time.Duration(l.Count)}
}

// signs reduces the durations to whether they are 0.
func signs(r gcra.Result) gcra.Result {
	for _, d := range []*time.Duration{&r.RetryAfter, &r.ResetAfter, &r.Delay} {
		if *d != 0 {
			*d = year
		}
	}
	return r
}

// near reports whether got equals want. A duration may be shorter by at most slack, since
// time passes; in a store that remembers it may also be longer by at most slack. A
// duration that is not 0 in want must not be 0 in got.
func (b *Backend) near(got, want gcra.Result, slack time.Duration) bool {
	longer := time.Duration(0)
	if b.Remembers {
		longer = slack
	}
	within := func(got, want time.Duration) bool {
		return got <= want+longer && got >= want-slack && (got > 0) == (want > 0)
	}
	return got.Allowed == want.Allowed && got.Never == want.Never && got.Taken == want.Taken && got.Remaining == want.Remaining &&
		within(got.RetryAfter, want.RetryAfter) &&
		within(got.ResetAfter, want.ResetAfter) &&
		within(got.Delay, want.Delay)
}

// Charges of a step.

func one(cost int64) []gcra.Charge { return all(gcra.Charge{Cost: cost}) }

func peek() []gcra.Charge { return all(gcra.Charge{Peek: true}) }

func late(cost, maxDebt int64) []gcra.Charge {
	return all(gcra.Charge{Cost: cost, MaxDebt: maxDebt, Late: true})
}

func of(l gcra.Limit, cost int64) []gcra.Charge { return []gcra.Charge{{Limit: l, Cost: cost}} }

func all(charges ...gcra.Charge) []gcra.Charge { return charges }

// Results of a step.

const s = time.Second

func results(r ...gcra.Result) []gcra.Result { return r }

func pass(remaining int64, reset time.Duration) gcra.Result {
	return gcra.Result{Allowed: true, Remaining: remaining, ResetAfter: reset}
}

// took is the result of a late charge.
func took(units, remaining int64, reset time.Duration) []gcra.Result {
	return results(gcra.Result{Allowed: true, Taken: units, Remaining: remaining, ResetAfter: reset})
}

func wait(remaining int64, reset, delay time.Duration) gcra.Result {
	return gcra.Result{Allowed: true, Remaining: remaining, ResetAfter: reset, Delay: delay}
}

func deny(remaining int64, reset, retry time.Duration) gcra.Result {
	return gcra.Result{Remaining: remaining, ResetAfter: reset, RetryAfter: retry}
}

func never(remaining int64, reset time.Duration) gcra.Result {
	return gcra.Result{Never: true, Remaining: remaining, ResetAfter: reset}
}

func passes(remaining int64, reset time.Duration) []gcra.Result {
	return results(pass(remaining, reset))
}

func denies(remaining int64, reset, retry time.Duration) []gcra.Result {
	return results(deny(remaining, reset, retry))
}
