package storetest

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

var (
	minute = gcra.PerMinute(60).WithBurst(60) // T = 1 s
	two    = gcra.PerSecond(1).WithBurst(2)   // T = 1 s
)

var groupTables = []table{
	// Two limits on one subject are both charged, or neither. The one that denies
	// returns RetryAfter, the other its remaining units.
	{"two policies of one subject", fiveASecond, []step{
		{ask: all(gcra.Charge{Subject: "u", Policy: "a", Limit: two, Cost: 1}, gcra.Charge{Subject: "u", Policy: "b", Cost: 1}),
			want: results(pass(1, 1*s), pass(4, 1*s))},
		{ask: all(gcra.Charge{Subject: "u", Policy: "a", Limit: two, Cost: 1}, gcra.Charge{Subject: "u", Policy: "b", Cost: 1}),
			want: results(pass(0, 2*s), pass(3, 2*s))},
		{ask: all(gcra.Charge{Subject: "u", Policy: "a", Limit: two, Cost: 1}, gcra.Charge{Subject: "u", Policy: "b", Cost: 1}),
			want: results(deny(0, 2*s, 1*s), pass(3, 2*s))},
		// The other order is denied as well.
		{ask: all(gcra.Charge{Subject: "u", Policy: "b", Cost: 1}, gcra.Charge{Subject: "u", Policy: "a", Limit: two, Cost: 1}),
			want: results(pass(3, 2*s), deny(0, 2*s, 1*s))},
		{ask: all(gcra.Charge{Subject: "u", Policy: "a", Limit: two, Peek: true}, gcra.Charge{Subject: "u", Policy: "b", Peek: true}),
			want: results(pass(0, 2*s), pass(3, 2*s))},
		{at: s, ask: all(gcra.Charge{Subject: "u", Policy: "a", Limit: two, Cost: 1}, gcra.Charge{Subject: "u", Policy: "b", Cost: 1}),
			want: results(pass(0, 2*s), pass(3, 2*s))},
	}},

	// The same with several subjects and with new keys: a denied admission leaves its
	// other buckets unchanged.
	{"several subjects", fiveASecond, []step{
		{ask: all(gcra.Charge{Subject: "c", Cost: 5}), want: passes(0, 5*s)},
		{ask: all(gcra.Charge{Subject: "a", Cost: 1}, gcra.Charge{Subject: "b", Cost: 2}, gcra.Charge{Subject: "c", Cost: 1}, gcra.Charge{Subject: "d", Cost: 5}),
			want: results(pass(5, 0), pass(5, 0), deny(0, 5*s, 1*s), pass(5, 0))},
		{ask: all(gcra.Charge{Subject: "a", Peek: true}), want: passes(5, 0)},
		{ask: all(gcra.Charge{Subject: "b", Peek: true}), want: passes(5, 0)},
		{ask: all(gcra.Charge{Subject: "c", Peek: true}), want: passes(0, 5*s)},
		{ask: all(gcra.Charge{Subject: "d", Peek: true}), want: passes(5, 0)},
		{ask: all(gcra.Charge{Subject: "d", Cost: 5}), want: passes(0, 5*s)},
		{at: s, ask: all(gcra.Charge{Subject: "a", Cost: 1}, gcra.Charge{Subject: "b", Cost: 2}, gcra.Charge{Subject: "c", Cost: 1}, gcra.Charge{Subject: "d", Cost: 1}),
			want: results(pass(4, 1*s), pass(3, 2*s), pass(0, 5*s), pass(0, 5*s))},
	}},

	// If several limits deny, each returns its own RetryAfter. The admission passes
	// after the longest.
	{"several denials", fiveASecond, []step{
		{ask: all(gcra.Charge{Subject: "a", Cost: 5}, gcra.Charge{Subject: "b", Limit: two, Cost: 2}), want: results(pass(0, 5*s), pass(0, 2*s))},
		{ask: all(gcra.Charge{Subject: "a", Cost: 3}, gcra.Charge{Subject: "b", Limit: two, Cost: 1}),
			want: results(deny(0, 5*s, 3*s), deny(0, 2*s, 1*s))},
		{at: 1 * s, ask: all(gcra.Charge{Subject: "a", Cost: 3}, gcra.Charge{Subject: "b", Limit: two, Cost: 1}),
			want: results(deny(1, 4*s, 2*s), pass(1, 1*s))},
		{at: 3 * s, ask: all(gcra.Charge{Subject: "a", Cost: 3}, gcra.Charge{Subject: "b", Limit: two, Cost: 1}),
			want: results(pass(0, 5*s), pass(1, 1*s))},
	}},

	// With a charge that can never pass, the whole admission is denied.
	{"never in a group", fiveASecond, []step{
		{ask: all(gcra.Charge{Subject: "a", Cost: 1}, gcra.Charge{Subject: "b", Cost: 6}), want: results(pass(5, 0), never(5, 0))},
		{ask: all(gcra.Charge{Subject: "b", Cost: 6}, gcra.Charge{Subject: "a", Cost: 1}), want: results(never(5, 0), pass(5, 0))},
		{ask: all(gcra.Charge{Subject: "a", Peek: true}, gcra.Charge{Subject: "b", Peek: true}), want: results(pass(5, 0), pass(5, 0))},
	}},

	// A peek never denies the admission.
	{"a peek in a group", fiveASecond, []step{
		{ask: all(gcra.Charge{Subject: "a", Cost: 5}), want: passes(0, 5*s)},
		{ask: all(gcra.Charge{Subject: "a", Peek: true}, gcra.Charge{Subject: "b", Cost: 1}), want: results(pass(0, 5*s), pass(4, 1*s))},
		{ask: all(gcra.Charge{Subject: "b", Peek: true}, gcra.Charge{Subject: "a", Cost: 1}), want: results(pass(4, 1*s), deny(0, 5*s, 1*s))},
	}},

	// A bucket that occurs twice in an admission is charged twice, or not at all.
	{"the same bucket twice", fiveASecond, []step{
		{ask: all(gcra.Charge{Cost: 1}, gcra.Charge{Cost: 1}), want: results(pass(4, 1*s), pass(3, 2*s))},
		{ask: all(gcra.Charge{Cost: 2}, gcra.Charge{Cost: 1}), want: results(pass(1, 4*s), pass(0, 5*s))},
		{at: s, ask: all(gcra.Charge{Cost: 1}, gcra.Charge{Cost: 1}), want: results(pass(1, 4*s), deny(0, 5*s, 1*s))},
		{at: s, ask: one(1), want: passes(0, 5*s)},
		{at: s, ask: all(gcra.Charge{Subject: "x", Cost: 1}, gcra.Charge{Cost: 1}, gcra.Charge{Subject: "x", Cost: 1}),
			want: results(pass(5, 0), deny(0, 5*s, 1*s), pass(4, 1*s))},
		{at: s, ask: all(gcra.Charge{Subject: "x", Peek: true}), want: passes(5, 0)},
	}},

	// The same with different limits. A peek with the smaller limit does not change
	// the state.
	{"the same bucket twice under two limits", minute, []step{
		{ask: one(30), want: passes(30, 30*s)},
		{ask: all(gcra.Charge{Limit: two, Peek: true}, gcra.Charge{Cost: 1}), want: results(pass(0, 2*s), pass(29, 31*s))},
		{ask: all(gcra.Charge{Cost: 1}, gcra.Charge{Limit: two, Peek: true}), want: results(pass(28, 32*s), pass(0, 2*s))},
		{ask: peek(), want: passes(28, 32*s)},
	}},

	// An admission may contain expired, new and existing keys.
	{"expired and new buckets together", fiveASecond, []step{
		{ask: all(gcra.Charge{Subject: "a", Cost: 2}, gcra.Charge{Subject: "b", Cost: 1}), want: results(pass(3, 2*s), pass(4, 1*s))},
		{at: 9 * s, ask: all(gcra.Charge{Subject: "a", Cost: 2}, gcra.Charge{Subject: "c", Cost: 1}, gcra.Charge{Subject: "b", Cost: 3}, gcra.Charge{Subject: "d", Cost: 1},
			gcra.Charge{Subject: "e", Cost: 1}, gcra.Charge{Subject: "f", Cost: 1}, gcra.Charge{Subject: "g", Cost: 1}, gcra.Charge{Subject: "h", Cost: 1}),
			want: results(pass(3, 2*s), pass(4, 1*s), pass(2, 3*s), pass(4, 1*s), pass(4, 1*s), pass(4, 1*s), pass(4, 1*s), pass(4, 1*s))},
		{at: 9 * s, ask: all(gcra.Charge{Subject: "a", Peek: true}), want: passes(3, 2*s)},
		{at: 9 * s, ask: all(gcra.Charge{Subject: "b", Peek: true}), want: passes(2, 3*s)},
		{at: 9 * s, ask: all(gcra.Charge{Subject: "h", Peek: true}), want: passes(4, 1*s)},
	}},

	// Limits of very different periods in one admission.
	{"burst and daily", gcra.PerSecond(2), []step{
		{ask: all(gcra.Charge{Policy: "burst", Cost: 1}, gcra.Charge{Policy: "daily", Limit: day(3), Cost: 1}), want: results(pass(1, s/2), pass(2, 8*time.Hour/slow))},
		{ask: all(gcra.Charge{Policy: "burst", Cost: 1}, gcra.Charge{Policy: "daily", Limit: day(3), Cost: 1}), want: results(pass(0, s), pass(1, 16*time.Hour/slow))},
		{ask: all(gcra.Charge{Policy: "burst", Cost: 1}, gcra.Charge{Policy: "daily", Limit: day(3), Cost: 1}), want: results(deny(0, s, s/2), pass(1, 16*time.Hour/slow))},
		{at: s, ask: all(gcra.Charge{Policy: "burst", Cost: 1}, gcra.Charge{Policy: "daily", Limit: day(3), Cost: 1}), want: results(pass(1, s/2), pass(0, 24*time.Hour/slow-s))},
		{at: 2 * s, ask: all(gcra.Charge{Policy: "burst", Cost: 1}, gcra.Charge{Policy: "daily", Limit: day(3), Cost: 1}), want: results(pass(2, 0), deny(0, 24*time.Hour/slow-2*s, 8*time.Hour/slow-2*s))},
	}},
}

// day is n a day, where a day is as much shorter as slow tables are slower.
func day(n int64) gcra.Limit { return gcra.Limit{Count: n, Per: 24 * time.Hour / slow} }
