package storetest

import "github.com/seed-e377111c/ratelimit/gcra"

var (
	slower = gcra.PerMinute(1).WithBurst(5)  // B·T = 300 s
	faster = gcra.PerSecond(10).WithBurst(5) // B·T = 0.5 s
)

var changeTables = []table{
	// A raised limit applies at once, also to an empty bucket: a denial lasts no
	// longer than the new limit takes to refill.
	{"a raised limit", slower, []step{
		{ask: one(5), want: passes(0, 300*s)},
		{ask: one(1), want: denies(0, 300*s, 60*s)},
		{ask: of(faster, 1), want: denies(0, s/2, s/10)},
		{at: s / 10, ask: of(faster, 1), want: passes(0, s/2)},
		{at: s, ask: of(faster, 5), want: passes(0, s/2)},
	}},

	// A cost above the burst passes with a larger burst.
	{"a larger burst", fiveASecond, []step{
		{ask: one(6), want: results(never(5, 0))},
		{ask: one(5), want: passes(0, 5*s)},
		{ask: of(fiveASecond.WithBurst(20), 6), want: passes(9, 11*s)},
	}},

	// A lowered limit keeps the time until the bucket is full, but at most the time
	// that the new limit takes to refill.
	{"a lowered limit", faster, []step{
		{ask: one(5), want: passes(0, s/2)},
		{ask: of(slower, 1), want: passes(3, 60*s+s/2)},
		{ask: of(slower, 4), want: denies(3, 60*s+s/2, s/2)},
		{at: s / 2, ask: of(slower, 4), want: passes(0, 300*s)},
	}},
	{"a smaller burst", fiveASecond.WithBurst(100), []step{
		{ask: one(50), want: passes(50, 50*s)},
		{ask: of(two, 1), want: denies(0, 2*s, 1*s)},
		{at: 1 * s, ask: of(two, 1), want: passes(0, 2*s)},
		{at: 1 * s, ask: of(two, 1), want: denies(0, 2*s, 1*s)},
	}},

	// A peek with a smaller limit writes nothing, so the larger limit's state is
	// unchanged. A charge that can never pass does not either.
	{"a peek with a smaller limit", fiveASecond.WithBurst(100), []step{
		{ask: one(50), want: passes(50, 50*s)},
		{ask: all(gcra.Charge{Limit: two, Peek: true}), want: passes(0, 2*s)},
		{ask: of(two, 3), want: results(never(0, 2*s))},
		{ask: peek(), want: passes(50, 50*s)},
	}},

	// Without its queue a limit denies for no longer than the bucket takes to refill.
	{"a shorter queue", fiveASecond, []step{
		{ask: []gcra.Charge{{Cost: 5, MaxDelay: 60 * s, MaxWait: 60 * s}}, want: passes(0, 5*s)},
		{ask: []gcra.Charge{{Cost: 5, MaxDelay: 60 * s, MaxWait: 60 * s}}, want: results(wait(0, 10*s, 5*s))},
		{ask: one(1), want: denies(0, 5*s, 1*s)},
		{at: 1 * s, ask: one(1), want: passes(0, 5*s)},
	}},
}
