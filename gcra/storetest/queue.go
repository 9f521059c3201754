package storetest

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// queued returns a charge with a MaxDelay of three seconds.
func queued(cost int64) []gcra.Charge {
	return []gcra.Charge{{Cost: cost, MaxDelay: 3 * s}}
}

// waiting returns the same with a MaxWait.
func waiting(cost int64, maxWait time.Duration) []gcra.Charge {
	return []gcra.Charge{{Cost: cost, MaxDelay: 3 * s, MaxWait: maxWait}}
}

// asking returns a charge of a limit that may be seven units in debt, settling one that
// may make the debt.
func asking(cost int64) []gcra.Charge {
	return []gcra.Charge{{Cost: cost, MaxDelay: 7 * s, MaxWait: 1}}
}

func settling(cost int64) []gcra.Charge {
	return []gcra.Charge{{Limit: fiveASecond.WithBurst(12), Cost: cost, MaxWait: 1}}
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
		{ask: queued(0), want: passes(0, 8*s)},
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

	// A charge of a larger burst overdraws the bucket. Others keep the debt and wait for it
	// if their MaxDelay makes their clamp as wide.
	{"debt", fiveASecond, []step{
		{ask: asking(3), want: passes(2, 3*s)},
		{ask: settling(6), want: passes(3, 9*s)},
		{ask: asking(1), want: denies(0, 9*s, 5*s)},
		{ask: asking(0), want: passes(0, 9*s)},
		{ask: settling(4), want: denies(3, 9*s, 1*s)},
		{ask: settling(3), want: passes(0, 12*s)},
		{ask: settling(1), want: denies(0, 12*s, 1*s)},
		{ask: asking(1), want: denies(0, 12*s, 8*s)},
		{at: 2 * s, ask: asking(1), want: denies(0, 10*s, 6*s)},
		{at: 2 * s, refund: true, ask: settling(4), want: passes(6, 6*s)},
		{at: 2 * s, ask: asking(1), want: denies(0, 6*s, 2*s)},
		{at: 4 * s, ask: asking(1), want: passes(0, 5*s)},
		{at: 4 * s, ask: settling(13), want: results(never(7, 5*s))},
	}},
}
