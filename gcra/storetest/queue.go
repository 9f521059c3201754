package storetest

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// queued is a charge that may be held back for up to three seconds.
func queued(cost int64) []gcra.Charge {
	return []gcra.Charge{{Cost: cost, MaxDelay: 3 * s}}
}

// patient is one whose caller does not want to wait for that long.
func patient(cost int64, within time.Duration) []gcra.Charge {
	return []gcra.Charge{{Cost: cost, MaxDelay: 3 * s, MaxWait: within}}
}

var queueTables = []table{
	// Beyond the burst, a charge with MaxDelay is let in late instead of
	// refused: each in its turn, none later than MaxDelay.
	{"a queue", fiveASecond, []step{
		{ask: queued(5), want: passes(0, 5*s)},
		{ask: queued(1), want: results(wait(0, 6*s, 1*s))},
		{ask: queued(1), want: results(wait(0, 7*s, 2*s))},
		{ask: queued(1), want: results(wait(0, 8*s, 3*s))},
		{ask: queued(1), want: refuses(0, 8*s, 1*s)},
		{ask: queued(2), want: refuses(0, 8*s, 2*s)},
		{ask: queued(0), want: passes(0, 8*s)},
		{at: s / 2, ask: queued(1), want: refuses(0, 15*s/2, s/2)},
		{at: s, ask: queued(1), want: results(wait(0, 8*s, 3*s))},
		{at: 5 * s, ask: queued(1), want: passes(0, 5*s)},
		{at: 5 * s, ask: queued(6), want: results(never(0, 5*s))},
	}},

	// A cost larger than what is left waits until all of it has come.
	{"a queue of large charges", fiveASecond, []step{
		{ask: queued(4), want: passes(1, 4*s)},
		{ask: queued(3), want: results(wait(0, 7*s, 2*s))},
		{ask: queued(3), want: refuses(0, 7*s, 2*s)},
		{at: 2 * s, ask: queued(3), want: results(wait(0, 8*s, 3*s))},
	}},

	// A caller of less patience is refused earlier and told the shorter of the
	// waits; the queue's length is for all the same, and more patience than
	// MaxDelay counts as MaxDelay.
	{"patience", fiveASecond, []step{
		{ask: patient(5, s), want: passes(0, 5*s)},
		{ask: patient(1, s), want: results(wait(0, 6*s, 1*s))},
		{ask: patient(1, s), want: refuses(0, 6*s, 1*s)},
		{ask: patient(1, 2*s), want: results(wait(0, 7*s, 2*s))},
		{ask: patient(1, s), want: refuses(0, 7*s, 2*s)},
		{ask: patient(1, 9*s), want: results(wait(0, 8*s, 3*s))},
		{ask: patient(1, 9*s), want: refuses(0, 8*s, 1*s)},
		{at: 3 * s, ask: patient(1, s), want: results(wait(0, 6*s, 1*s))},
	}},

	// A queue is shortened first.
	{"refund of a queue", fiveASecond, []step{
		{ask: queued(5), want: passes(0, 5*s)},
		{ask: queued(2), want: results(wait(0, 7*s, 2*s))},
		{refund: true, ask: queued(2), want: passes(0, 5*s)},
		{refund: true, ask: queued(1), want: passes(1, 4*s)},
		{ask: queued(2), want: results(wait(0, 6*s, 1*s))},
	}},
}
