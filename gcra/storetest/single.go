package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// tables are for every store, gcraTables for those with the algorithm GCRA.
var (
	tables     = slices.Concat(singleTables, groupTables, shadowTables, refundTables)
	gcraTables = slices.Concat(queueTables, changeTables)
)

var fiveASecond = gcra.PerSecond(1).WithBurst(5) // B = 5, T = 1 s

const tick = 100 * time.Nanosecond

var exactTables = []table{
	// A charge passes after RetryAfter, and is denied a tick earlier.
	{"RetryAfter is exact to the tick", gcra.Limit{Count: 1, Per: 3_333_333 * tick, Burst: 3}, []step{
		{ask: one(3), want: passes(0, 9_999_999*tick)},
		{ask: one(1), want: denies(0, 9_999_999*tick, 3_333_333*tick)},
		{at: 3_333_332 * tick, ask: one(1), want: denies(0, 6_666_667*tick, 1*tick)},
		{at: 3_333_333 * tick, ask: one(1), want: passes(0, 9_999_999*tick)},
	}},

	// A bucket is full after ResetAfter, and not a tick earlier.
	{"ResetAfter is exact to the tick", gcra.PerSecond(1000), []step{
		{ask: one(1), want: passes(999, 10_000*tick)},
		{at: 9_999 * tick, ask: peek(), want: passes(999, 1*tick)},
		{at: 9_999 * tick, ask: one(1000), want: denies(999, 1*tick, 1*tick)},
		{at: 10_000 * tick, ask: one(1000), want: passes(0, s)},
	}},

	// Intervals are rounded to a tick.
	{"seven a second", gcra.PerSecond(7), []step{
		{ask: one(1), want: passes(6, 1_428_571*tick)},
		{ask: one(6), want: passes(0, 9_999_997*tick)},
		{ask: one(1), want: denies(0, 9_999_997*tick, 1_428_571*tick)},
		{at: 1_428_570 * tick, ask: one(1), want: denies(0, 8_571_427*tick, 1*tick)},
		{at: 1_428_571 * tick, ask: one(1), want: passes(0, 9_999_997*tick)},
	}},

	// The fastest and the slowest limits are exact too.
	{"a million a second", gcra.PerSecond(1_000_000), []step{
		{ask: one(1), want: passes(999_999, 10*tick)},
		{ask: one(999_999), want: passes(0, s)},
		{at: 9 * tick, ask: one(1), want: denies(0, s-9*tick, 1*tick)},
		{at: 10 * tick, ask: one(1), want: passes(0, s)},
	}},
	{"one in 366 days", gcra.Limit{Count: 1, Per: year}, []step{
		{ask: one(1), want: passes(0, year)},
		{at: year - tick, ask: one(1), want: denies(0, tick, tick)},
		{at: year, ask: one(1), want: passes(0, year)},
	}},
	{"one in 366 days, and a queue as long", gcra.Limit{Count: 1, Per: year}, []step{
		{ask: []gcra.Charge{{Cost: 1, MaxDelay: year, MaxWait: year}}, want: passes(0, year)},
		{ask: []gcra.Charge{{Cost: 1, MaxDelay: year, MaxWait: year}}, want: results(wait(0, 2*year, year))},
		{ask: []gcra.Charge{{Cost: 1, MaxDelay: year, MaxWait: year}}, want: denies(0, 2*year, year)},
	}},
}

const year = 366 * 24 * time.Hour // the longest time in which a bucket may refill

var singleTables = []table{
	// The vectors of throttled (TestRateLimit) and redis-cell
	// (it_rates_limits): five at once, then one a second.
	{"vectors of throttled and redis-cell", fiveASecond, []step{
		{at: 0, ask: one(6), want: results(never(5, 0))},
		{at: 0, ask: one(1), want: passes(4, 1*s)},
		{at: 0, ask: one(1), want: passes(3, 2*s)},
		{at: 0, ask: one(1), want: passes(2, 3*s)},
		{at: 0, ask: one(1), want: passes(1, 4*s)},
		{at: 0, ask: one(1), want: passes(0, 5*s)},
		{at: 0, ask: one(1), want: denies(0, 5*s, 1*s)},
		{at: 3 * s, ask: one(1), want: passes(2, 3*s)},
		{at: 31 * s / 10, ask: one(1), want: passes(1, 39*s/10)},
		{at: 4 * s, ask: one(1), want: passes(1, 4*s)},
		{at: 8 * s, ask: one(1), want: passes(4, 1*s)},
		{at: 95 * s / 10, ask: one(1), want: passes(4, 1*s)},
		{at: 95 * s / 10, ask: peek(), want: passes(4, 1*s)},
		{at: 95 * s / 10, ask: one(2), want: passes(2, 3*s)},
		{at: 95 * s / 10, ask: one(5), want: denies(2, 3*s, 3*s)},
		{at: 15 * s, ask: one(6), want: results(never(5, 0))},
	}},

	// The vectors of rwz/redis-gcra's spec: 1000 a minute, in any portions.
	{"portions of 1000: 2", gcra.PerMinute(1000), []step{{ask: one(2), want: passes(998, 120*time.Millisecond)}}},
	{"portions of 1000: 137", gcra.PerMinute(1000), []step{{ask: one(137), want: passes(863, 8220*time.Millisecond)}}},
	{"portions of 1000: 200 five times", gcra.PerMinute(1000), []step{
		{ask: one(200), want: passes(800, 12*s)},
		{ask: one(200), want: passes(600, 24*s)},
		{ask: one(200), want: passes(400, 36*s)},
		{ask: one(200), want: passes(200, 48*s)},
		{ask: one(200), want: passes(0, 60*s)},
		{ask: one(1), want: denies(0, 60*s, 60*time.Millisecond)},
	}},

	// The first call of a bucket of 10 leaves 9, and the capacity is the burst:
	// the tenth passes, the eleventh does not.
	{"capacity is the burst", gcra.PerSecond(10), []step{
		{ask: one(1), want: passes(9, s/10)},
		{ask: one(8), want: passes(1, 9*s/10)},
		{ask: one(1), want: passes(0, s)},
		{ask: one(1), want: denies(0, s, s/10)},
	}},
	{"a burst of one", gcra.PerSecond(1), []step{
		{ask: one(1), want: passes(0, s)},
		{ask: one(1), want: denies(0, s, s)},
		{at: s, ask: one(1), want: passes(0, s)},
	}},

	// A peek is never denied and changes nothing, in every state.
	{"peeks", fiveASecond, []step{
		{ask: peek(), want: passes(5, 0)},
		{ask: peek(), want: passes(5, 0)},
		{ask: one(5), want: passes(0, 5*s)},
		{ask: peek(), want: passes(0, 5*s)},
		{ask: one(1), want: denies(0, 5*s, 1*s)},
		{at: 2 * s, ask: peek(), want: passes(2, 3*s)},
		{at: 2 * s, ask: one(2), want: passes(0, 5*s)},
		{at: 20 * s, ask: peek(), want: passes(5, 0)},
	}},

	// A cost that is left out is 1, of a refund too.
	{"cost 0 is 1", fiveASecond, []step{
		{ask: one(0), want: passes(4, 1*s)},
		{ask: one(0), want: passes(3, 2*s)},
		{refund: true, ask: one(0), want: passes(4, 1*s)},
		{ask: late(0, 0), want: took(1, 3, 2*s)},
		{ask: one(4), want: denies(3, 2*s, 1*s)},
		{ask: one(3), want: passes(0, 5*s)},
		{ask: one(0), want: denies(0, 5*s, 1*s)},
	}},

	// A late charge takes what is left at most. It is never denied.
	{"late takes what is left", fiveASecond, []step{
		{ask: late(3, 0), want: took(3, 2, 3*s)},
		{ask: late(4, 0), want: took(2, 0, 5*s)},
		{ask: late(1, 0), want: took(0, 0, 5*s)},
		{ask: one(1), want: denies(0, 5*s, 1*s)},
		{at: 3 * s, ask: late(1<<63-1, 0), want: took(3, 0, 5*s)},
	}},

	// It takes part in an admission: with another charge that is denied it takes nothing,
	// and it counts for later charges of the admission.
	{"late beside others", fiveASecond, []step{
		{ask: all(gcra.Charge{Cost: 3, Late: true}, gcra.Charge{Policy: "q", Cost: 6}), want: results(pass(5, 0), never(5, 0))},
		{ask: all(gcra.Charge{Cost: 3, Late: true}, gcra.Charge{Cost: 3}), want: results(pass(5, 0), deny(2, 3*s, 1*s))},
		{ask: all(gcra.Charge{Cost: 3, Late: true}, gcra.Charge{Cost: 3, Late: true}, gcra.Charge{Policy: "q"}),
			want: slices.Concat(took(3, 2, 3*s), took(2, 0, 5*s), passes(4, s))},
		{ask: peek(), want: passes(0, 5*s)},
	}},

	// A cost above the burst never passes: there is no RetryAfter and nothing is
	// taken, from an empty or full bucket, for any cost.
	{"more than the burst never passes", fiveASecond, []step{
		{ask: one(6), want: results(never(5, 0))},
		{ask: one(1 << 31), want: results(never(5, 0))},
		{ask: one(1 << 53), want: results(never(5, 0))},
		{ask: one(1<<63 - 1), want: results(never(5, 0))},
		{ask: one(5), want: passes(0, 5*s)},
		{ask: one(6), want: results(never(0, 5*s))},
		{at: s, ask: one(1), want: passes(0, 5*s)},
	}},

	// A denial takes nothing, so retries do not extend it.
	{"denials are free", fiveASecond, []step{
		{ask: one(5), want: passes(0, 5*s)},
		{at: s / 2, ask: one(1), want: denies(0, 9*s/2, s/2)},
		{at: s / 2, ask: one(1), want: denies(0, 9*s/2, s/2)},
		{at: s / 2, ask: one(4), want: denies(0, 9*s/2, 7*s/2)},
		{at: s, ask: one(1), want: passes(0, 5*s)},
	}},

	// A charge passes after RetryAfter, and not earlier.
	{"RetryAfter", fiveASecond, []step{
		{ask: one(5), want: passes(0, 5*s)},
		{at: 9 * s / 10, ask: one(1), want: denies(0, 41*s/10, s/10)},
		{at: s, ask: one(1), want: passes(0, 5*s)},
		{at: s, ask: one(3), want: denies(0, 5*s, 3*s)},
		{at: 39 * s / 10, ask: one(3), want: denies(2, 21*s/10, s/10)},
		{at: 4 * s, ask: one(3), want: passes(0, 5*s)},
	}},

	// After the clock has gone back, by any amount, a denial lasts no longer than an
	// empty bucket takes to refill. The first denial repairs the stored state.
	{"clock going back", fiveASecond, []step{
		{at: 1000 * s, ask: one(3), want: passes(2, 3*s)},
		{at: 999 * s, ask: one(1), want: passes(0, 5*s)},
		{at: 100 * s, ask: peek(), want: passes(0, 5*s)},
		{at: 100 * s, ask: one(1), want: denies(0, 5*s, 1*s)},
		{at: 101 * s, ask: one(1), want: passes(0, 5*s)},
		{at: 0, ask: one(5), want: denies(0, 5*s, 5*s)},
		{at: 5 * s, ask: one(5), want: passes(0, 5*s)},
	}},

	// After the clock has leapt ahead, the bucket is full and not fuller.
	{"clock leaping ahead", fiveASecond, []step{
		{ask: one(5), want: passes(0, 5*s)},
		{at: 10_000 * s, ask: one(6), want: results(never(5, 0))},
		{at: 10_000 * s, ask: one(5), want: passes(0, 5*s)},
		{at: 10_000 * s, ask: one(1), want: denies(0, 5*s, 1*s)},
	}},

	// A bucket that is full again equals a new one.
	{"an expired bucket", fiveASecond, []step{
		{ask: one(2), want: passes(3, 2*s)},
		{at: 2 * s, ask: peek(), want: passes(5, 0)},
		{at: 2 * s, ask: one(5), want: passes(0, 5*s)},
		{at: 2 * s, ask: one(1), want: denies(0, 5*s, 1*s)},
	}},
}

// spendAll is the rest of rwz/redis-gcra's spec: 300 at once, then one a second. The
// sum of many charges is exact.
func spendAll(t *testing.T, b Backend) {
	per, start := 60*s, time.Now()
	if !b.Exact {
		per *= slow
	}

	unit := per / 60
	limit := gcra.Limit{Count: 60, Per: per, Burst: 300}

	take := func(subject string, cost int64) gcra.Result {
		t.Helper()
		r, err := gcra.Take(t.Context(), b.Store, gcra.Charge{Subject: subject, Policy: "p", Limit: limit, Cost: cost})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}

	check := func(what string, got, want gcra.Result) {
		t.Helper()
		want.Taken = got.Taken // the sum is in Remaining

		slack := time.Duration(0)
		if !b.Exact {
			slack = time.Since(start) + time.Millisecond
		}

		if !b.near(got, want, slack) {
			t.Errorf("%s: got %+v; want %+v (durations at most %v shorter)", what, got, want, slack)
		}
	}

	var r gcra.Result
	for range 101 {
		r = take("ones", 1)
	}
	check("after 101 of 300", r, pass(199, 101*unit))

	for range 101 {
		r = take("twos", 2)
	}
	check("after 101 times 2 of 300", r, pass(98, 202*unit))

	for range 198 {
		r = take("ones", 1)
	}
	check("after 299 of 300", r, pass(1, 299*unit))

	check("2 where 1 remains", take("ones", 2), deny(1, 299*unit, unit))
	check("the last of 300", take("ones", 1), pass(0, 300*unit))

	for range 10 {
		check("the 301st", take("ones", 1), deny(0, 300*unit, unit))
	}

	b.Advance(unit)
	check("after the wait", take("ones", 1), pass(0, 300*unit))
}
