package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

var fivePerTen = gcra.Limit{Count: 5, Per: 10 * s}

// delayed returns a charge with a MaxDelay of a minute.
func delayed(l gcra.Limit, policy string) gcra.Charge {
	return gcra.Charge{Limit: l, Policy: policy, Cost: 1, MaxDelay: 60 * s, MaxWait: 60 * s}
}

var slidingTables = []table{
	// Each unit leaves the window after Per, and not all of them together: there is no
	// edge at which a second burst passes.
	{name: "units leave one by one", limit: fivePerTen, steps: []step{
		{ask: one(1), want: passes(4, 10*s)},
		{at: 9 * s, ask: one(4), want: passes(0, 10*s)},
		{at: 9 * s, ask: one(1), want: denies(0, 10*s, 1*s)},
		{at: 10 * s, ask: one(1), want: passes(0, 10*s)},
		{at: 10 * s, ask: one(1), want: denies(0, 10*s, 9*s)},
		{at: 19 * s, ask: one(4), want: passes(0, 10*s)},
		{at: 19 * s, ask: one(2), want: denies(0, 10*s, 10*s)},
		{at: 20 * s, ask: one(1), want: passes(0, 10*s)},
	}},

	// RetryAfter is the time until enough of the oldest units leave, whatever charges
	// took them; ResetAfter is the time until the newest leaves.
	{name: "as many as needed leave", limit: fivePerTen, steps: []step{
		{ask: one(2), want: passes(3, 10*s)},
		{at: 1 * s, ask: one(1), want: passes(2, 10*s)},
		{at: 3 * s, ask: one(2), want: passes(0, 10*s)},
		{at: 4 * s, ask: one(1), want: denies(0, 9*s, 6*s)},
		{at: 4 * s, ask: one(2), want: denies(0, 9*s, 6*s)},
		{at: 4 * s, ask: one(3), want: denies(0, 9*s, 7*s)},
		{at: 4 * s, ask: one(4), want: denies(0, 9*s, 9*s)},
		{at: 4 * s, ask: one(5), want: denies(0, 9*s, 9*s)},
		{at: 4 * s, ask: one(6), want: results(never(0, 9*s))},
		{at: 11 * s, ask: peek(), want: passes(3, 2*s)},
		{at: 11 * s, ask: one(3), want: passes(0, 10*s)},
		{at: 30 * s, ask: one(5), want: passes(0, 10*s)},
	}},

	// A refund removes the newest units, also a part of a charge.
	{name: "refund of the newest", limit: fivePerTen, steps: []step{
		{ask: one(2), want: passes(3, 10*s)},
		{at: 2 * s, ask: one(3), want: passes(0, 10*s)},
		{at: 3 * s, refund: true, ask: one(2), want: passes(2, 9*s)},
		{at: 3 * s, refund: true, ask: one(1), want: passes(3, 7*s)},
		{at: 4 * s, ask: one(1), want: passes(2, 10*s)},
		{at: 4 * s, refund: true, ask: one(2), want: passes(4, 6*s)},
		{at: 4 * s, ask: one(4), want: passes(0, 10*s)},
		{at: 4 * s, ask: one(1), want: denies(0, 10*s, 6*s)},
		{at: 10 * s, refund: true, ask: one(9), want: passes(5, 0)},
	}},

	// After the clock has gone back, no unit is in the future.
	{name: "clock going back in a window", limit: fivePerTen, steps: []step{
		{at: 1000 * s, ask: one(4), want: passes(1, 10*s)},
		{at: 0, ask: peek(), want: passes(1, 10*s)},
		{at: 0, ask: one(2), want: denies(1, 10*s, 10*s)},
		{at: 4 * s, ask: one(1), want: passes(0, 10*s)},
		{at: 10 * s, ask: one(4), want: passes(0, 10*s)},
	}},

	// A new count applies at once.
	{name: "a count that changes", limit: fivePerTen, steps: []step{
		{ask: one(5), want: passes(0, 10*s)},
		{ask: of(gcra.Limit{Count: 7, Per: 10 * s}, 2), want: passes(0, 10*s)},
		{ask: one(1), want: denies(0, 10*s, 10*s)},
		{at: 5 * s, ask: of(gcra.Limit{Count: 2, Per: 10 * s}, 1), want: denies(0, 5*s, 5*s)},
		{at: 5 * s, ask: of(gcra.Limit{Count: 8, Per: 10 * s}, 1), want: passes(0, 10*s)},
	}},

	// A charge with MaxDelay waits until its units fit, and later charges do not
	// overtake it.
	{name: "a queue for a window", limit: gcra.Limit{Count: 2, Per: 2 * s}, steps: []step{
		{ask: queued(1), want: passes(1, 2*s)},
		{at: 1 * s, ask: queued(2), want: results(wait(0, 3*s, 1*s))},
		{at: 1 * s, ask: waiting(1, 2*s), want: denies(0, 3*s, 1*s)},
		{at: 1 * s, ask: queued(1), want: results(wait(0, 5*s, 3*s))},
		{at: 1 * s, ask: queued(1), want: results(wait(0, 5*s, 3*s))},
		{at: 1 * s, ask: queued(1), want: denies(0, 5*s, 2*s)},
		{at: 1 * s, ask: all(gcra.Charge{Peek: true, MaxDelay: 3 * s}), want: passes(0, 5*s)},
		{at: 3 * s, ask: queued(1), want: results(wait(0, 5*s, 3*s))},
		{at: 3 * s, refund: true, ask: queued(1), want: passes(0, 3*s)},
		{at: 4 * s, refund: true, ask: queued(1), want: passes(1, 2*s)},
		{at: 4 * s, ask: queued(1), want: passes(0, 2*s)},
	}},

	// An admission has one delay: all its windows count from the same time.
	{name: "two windows, one delay", steps: []step{
		{ask: all(delayed(gcra.Limit{Count: 1, Per: 4 * s}, "a"), delayed(fivePerTen, "b")), want: results(pass(0, 4*s), pass(4, 10*s))},
		{at: 1 * s, ask: all(delayed(gcra.Limit{Count: 1, Per: 4 * s}, "a"), delayed(fivePerTen, "b")), want: results(wait(0, 7*s, 3*s), wait(3, 13*s, 3*s))},
		{at: 11 * s, ask: all(gcra.Charge{Limit: fivePerTen, Policy: "b", Peek: true}), want: passes(4, 3*s)},
	}},

	// An admission cannot take more from a bucket than it holds.
	{name: "the same window twice", limit: fivePerTen, steps: []step{
		{ask: all(gcra.Charge{Cost: 3, MaxDelay: 60 * s, MaxWait: 60 * s}, gcra.Charge{Cost: 3, MaxDelay: 60 * s, MaxWait: 60 * s}), want: results(pass(5, 0), deny(2, 10*s, 10*s))},
		{ask: peek(), want: passes(5, 0)},
		{ask: all(gcra.Charge{Cost: 3}, gcra.Charge{Cost: 2}), want: results(pass(2, 10*s), pass(0, 10*s))},
	}},
}

var exactSlidingTables = []table{
	// A charge passes after RetryAfter, and is denied a microsecond earlier.
	{name: "a window is exact to the microsecond", limit: gcra.Limit{Count: 2, Per: 3_333_333 * time.Microsecond}, steps: []step{
		{ask: one(1), want: passes(1, 3_333_333*time.Microsecond)},
		{at: time.Microsecond, ask: one(1), want: passes(0, 3_333_333*time.Microsecond)},
		{at: time.Microsecond, ask: one(1), want: denies(0, 3_333_333*time.Microsecond, 3_333_332*time.Microsecond)},
		{at: 3_333_332 * time.Microsecond, ask: one(1), want: denies(0, 2*time.Microsecond, time.Microsecond)},
		{at: 3_333_333 * time.Microsecond, ask: one(1), want: passes(0, 3_333_333*time.Microsecond)},
		{at: 3_333_333 * time.Microsecond, ask: one(1), want: denies(0, 3_333_333*time.Microsecond, time.Microsecond)},
	}},

	// All charges of one microsecond count.
	{name: "one moment", limit: gcra.Limit{Count: 12, Per: s}, steps: slices.Concat(
		slices.Collect(func(yield func(step) bool) {
			for n := int64(11); n >= 0 && yield(step{ask: one(1), want: passes(n, s)}); n-- {
			}
		}),
		[]step{
			{ask: one(1), want: denies(0, s, s)},
			{refund: true, ask: one(3), want: passes(3, s)},
			{ask: one(3), want: passes(0, s)},
			{at: s, ask: one(12), want: passes(0, s)},
		},
	)},
}

// With concurrent callers, no window of length Per contains more than Count units.
func boundOfWindow(t *testing.T, b Backend) {
	const (
		callers = 8
		per     = 20 * time.Millisecond
		count   = 10
		lasting = 150 * time.Millisecond
	)
	charge := gcra.Charge{Subject: "s", Policy: "p", Limit: gcra.Limit{Count: count, Per: per}, Cost: 1}
	list := admissions(t, b, callers, 2*count, lasting, per/16, charge)
	if len(list) < 2*count {
		t.Errorf("%d passed in %v; want at least %d", len(list), slowest, 2*count)
	}

	// The time of the k-th admission is between the k-th from and the k-th to.
	var from, to []time.Duration
	for _, a := range list {
		from, to = append(from, a.from), append(to, a.to)
	}

	slices.Sort(from)
	slices.Sort(to)

	slack := time.Duration(0)
	if !b.Exact {
		slack = per / 50 // the store's clock may drift from ours
	}

	for i := range len(list) - count {
		if d := to[i+count] - from[i]; d < per-slack {
			t.Fatalf("%d passed within %v; want at most %d in %v", count+1, d, count, per)
		}
	}

	t.Logf("%d admissions", len(list))
}
