package storetest

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// queued returns a charge with a MaxDelay of three seconds.
func queued(cost int64) []gcra.Charge {
	return []gcra.Charge{{Cost: cost, MaxDelay: 3 * s, MaxWait: 3 * s}}
}

// waiting returns the same with a MaxWait.
func waiting(cost int64, maxWait time.Duration) []gcra.Charge {
	return []gcra.Charge{{Cost: cost, MaxDelay: 3 * s, MaxWait: maxWait}}
}

// asking returns a charge of a limit that may be in debt.
func asking(cost, maxDebt int64) []gcra.Charge {
	return all(gcra.Charge{Cost: cost, MaxDebt: maxDebt})
}

var queueTables = []table{
	// Beyond the burst, charges with MaxDelay are delayed instead of denied, in order,
	// by at most MaxDelay.
	{"a queue", fiveASecond, []step{
		{ask: queued(5), want: passes(0, 5*s)},
		{ask: queued(1), want: results(wait(0, 6*s, 1*s))},
		{ask: queued(1), want: results(wait(0, 7*s, 2*s))},
		{ask: queued(1), want: results(wait(0, 8*s, 3*s))},
		{ask: queued(1), want: denies(0, 8*s, 1*s)},
		{ask: queued(2), want: denies(0, 8*s, 2*s)},
		{ask: all(gcra.Charge{Peek: true, MaxDelay: 3 * s}), want: passes(0, 8*s)},
		{at: s / 2, ask: queued(1), want: denies(0, 15*s/2, s/2)},
		{at: s, ask: queued(1), want: results(wait(0, 8*s, 3*s))},
		{at: 5 * s, ask: queued(1), want: passes(0, 5*s)},
		{at: 5 * s, ask: queued(6), want: results(never(0, 5*s))},
	}},

	// A cost larger than the remaining units waits until all of it has refilled.
	{"a queue of large charges", fiveASecond, []step{
		{ask: queued(4), want: passes(1, 4*s)},
		{ask: queued(3), want: results(wait(0, 7*s, 2*s))},
		{ask: queued(3), want: denies(0, 7*s, 2*s)},
		{at: 2 * s, ask: queued(3), want: results(wait(0, 8*s, 3*s))},
	}},

	// A charge with a smaller MaxWait is denied earlier, and its RetryAfter is until
	// its own delay would be short enough. The queue is the same for all. A MaxWait
	// above MaxDelay counts as MaxDelay.
	{"MaxWait", fiveASecond, []step{
		{ask: waiting(5, s), want: passes(0, 5*s)},
		{ask: waiting(1, s), want: results(wait(0, 6*s, 1*s))},
		{ask: waiting(1, s), want: denies(0, 6*s, 1*s)},
		{ask: waiting(1, 2*s), want: results(wait(0, 7*s, 2*s))},
		{ask: waiting(1, s), want: denies(0, 7*s, 2*s)},
		{ask: waiting(1, 9*s), want: results(wait(0, 8*s, 3*s))},
		{ask: waiting(1, 9*s), want: denies(0, 8*s, 1*s)},
		{at: 3 * s, ask: waiting(1, s), want: results(wait(0, 6*s, 1*s))},
	}},

	// A refund shortens the queue first.
	{"refund of a queue", fiveASecond, []step{
		{ask: queued(5), want: passes(0, 5*s)},
		{ask: queued(2), want: results(wait(0, 7*s, 2*s))},
		{refund: true, ask: queued(2), want: passes(0, 5*s)},
		{refund: true, ask: queued(1), want: passes(1, 4*s)},
		{ask: queued(2), want: results(wait(0, 6*s, 1*s))},
	}},

	// A charge that does not wait is denied where the limit would delay it.
	{"MaxWait 0", fiveASecond, []step{
		{ask: queued(6), want: results(never(5, 0))},
		{ask: queued(5), want: passes(0, 5*s)},
		{ask: waiting(1, 0), want: denies(0, 5*s, 1*s)},
		{ask: queued(1), want: results(wait(0, 6*s, 1*s))},
		{ask: waiting(1, 0), want: denies(0, 6*s, 2*s)},
	}},

	// A late charge overdraws the bucket by up to MaxDebt. Others wait until the debt is paid.
	{"debt", fiveASecond, []step{
		{ask: asking(3, 7), want: passes(2, 3*s)},
		{ask: late(6, 7), want: took(6, 0, 9*s)},
		{ask: asking(1, 7), want: denies(0, 9*s, 5*s)},
		{ask: all(gcra.Charge{Peek: true, MaxDebt: 7}), want: passes(0, 9*s)},
		{ask: late(4, 7), want: took(3, 0, 12*s)},
		{ask: late(1, 7), want: took(0, 0, 12*s)},
		{ask: asking(1, 7), want: denies(0, 12*s, 8*s)},
		{at: 2 * s, ask: asking(1, 7), want: denies(0, 10*s, 6*s)},
		{at: 2 * s, refund: true, ask: late(4, 7), want: passes(0, 6*s)},
		{at: 2 * s, ask: asking(1, 7), want: denies(0, 6*s, 2*s)},
		{at: 4 * s, ask: asking(1, 7), want: passes(0, 5*s)},
		{at: 4 * s, ask: late(1<<62, 7), want: took(7, 0, 12*s)},
		{at: 9*s - s/2, ask: late(9, 7), want: took(4, 0, 23*s/2)},
	}},

	// Only an ordinary charge brings a bucket down to what its own limit allows. Late
	// charges, refunds and peeks of a limit with less debt leave the bucket as it is.
	{"debt of another limit", fiveASecond, []step{
		{ask: late(55, 100), want: took(55, 0, 55*s)},
		{ask: late(1, 7), want: took(0, 0, 55*s)},
		{refund: true, ask: one(5), want: passes(0, 50*s)},
		{ask: asking(1, 100), want: denies(0, 50*s, 46*s)},
		{ask: asking(1, 7), want: denies(0, 12*s, 8*s)},
		{ask: asking(1, 100), want: denies(0, 12*s, 8*s)},
		{ask: one(1), want: denies(0, 5*s, 1*s)},
	}},

	// A queue and debt are one bucket: what is longer of both is its clamp.
	{"debt and a queue", fiveASecond, []step{
		{ask: late(8, 7), want: took(8, 0, 8*s)},
		{ask: all(gcra.Charge{MaxDebt: 7, MaxDelay: 3 * s, MaxWait: 3 * s}), want: denies(0, 8*s, 1*s)},
		{at: s, ask: all(gcra.Charge{MaxDebt: 7, MaxDelay: 3 * s, MaxWait: 3 * s}), want: results(wait(0, 8*s, 3*s))},
	}},
}
