package storetest

import "github.com/seed-e377111c/ratelimit/gcra"

var refundTables = []table{
	// A refund restores the state before the charge.
	{"refund restores", fiveASecond, []step{
		{ask: one(2), want: passes(3, 2*s)},
		{ask: one(3), want: passes(0, 5*s)},
		{refund: true, ask: one(3), want: passes(3, 2*s)},
		{ask: peek(), want: passes(3, 2*s)},
		{ask: one(4), want: denies(3, 2*s, 1*s)},
		{ask: one(3), want: passes(0, 5*s)},
	}},

	// A refund never fills a bucket beyond full: not when it is made twice, nor on a
	// new or expired bucket.
	{"refund is never more than full", fiveASecond, []step{
		{refund: true, ask: one(3), want: passes(5, 0)},
		{ask: one(5), want: passes(0, 5*s)},
		{refund: true, ask: one(5), want: passes(5, 0)},
		{refund: true, ask: one(5), want: passes(5, 0)},
		{ask: one(5), want: passes(0, 5*s)},
		{ask: one(1), want: denies(0, 5*s, 1*s)},
		{at: 9 * s, refund: true, ask: one(1), want: passes(5, 0)},
		{at: 9 * s, ask: one(5), want: passes(0, 5*s)},
		{at: 9 * s, ask: one(1), want: denies(0, 5*s, 1*s)},
	}},

	// Units that have refilled since the charge are not refunded.
	{"refund late", fiveASecond, []step{
		{ask: one(3), want: passes(2, 3*s)},
		{at: 1 * s, refund: true, ask: one(1), want: passes(4, 1*s)},
		{at: 1 * s, refund: true, ask: one(2), want: passes(5, 0)},
		{at: 1 * s, ask: one(5), want: passes(0, 5*s)},
		{at: 1 * s, ask: one(1), want: denies(0, 5*s, 1*s)},
	}},

	// A refund of the burst or more fills the bucket.
	{"refund resets", fiveASecond, []step{
		{ask: one(4), want: passes(1, 4*s)},
		{refund: true, ask: one(5), want: passes(5, 0)},
		{ask: one(4), want: passes(1, 4*s)},
		{refund: true, ask: one(1<<63 - 1), want: passes(5, 0)},
		{ask: one(5), want: passes(0, 5*s)},
		{refund: true, ask: peek(), want: passes(0, 5*s)},
	}},

	// A refund changes all buckets of a group, independent of their state.
	{"refund of a group", fiveASecond, []step{
		{ask: all(gcra.Charge{Subject: "a", Cost: 2}, gcra.Charge{Subject: "b", Policy: "q", Limit: two, Cost: 2}), want: results(pass(3, 2*s), pass(0, 2*s))},
		{refund: true, ask: all(gcra.Charge{Subject: "a", Cost: 1}, gcra.Charge{Subject: "b", Policy: "q", Limit: two, Cost: 2}, gcra.Charge{Subject: "c", Cost: 1}),
			want: results(pass(4, 1*s), pass(2, 0), pass(5, 0))},
		{ask: all(gcra.Charge{Subject: "a", Peek: true}, gcra.Charge{Subject: "b", Policy: "q", Limit: two, Peek: true}, gcra.Charge{Subject: "c", Peek: true}),
			want: results(pass(4, 1*s), pass(2, 0), pass(5, 0))},
	}},
}
