package storetest

import "github.com/seed-e377111c/ratelimit/gcra"

var shadowTables = []table{
	// A shadow never denies the admission. It is charged if its own limit and all
	// enforced limits allow it.
	{"a shadow beside an enforced limit", fiveASecond, []step{
		{ask: all(gcra.Charge{Policy: "try", Limit: two, Cost: 1, Shadow: true}, gcra.Charge{Policy: "real", Cost: 1}),
			want: results(pass(1, 1*s), pass(4, 1*s))},
		{ask: all(gcra.Charge{Policy: "real", Cost: 1}, gcra.Charge{Policy: "try", Limit: two, Cost: 1, Shadow: true}),
			want: results(pass(3, 2*s), pass(0, 2*s))},
		// The shadow's limit denies: only the other is charged.
		{ask: all(gcra.Charge{Policy: "try", Limit: two, Cost: 1, Shadow: true}, gcra.Charge{Policy: "real", Cost: 1}),
			want: results(deny(0, 2*s, 1*s), pass(2, 3*s))},
		{ask: all(gcra.Charge{Policy: "real", Cost: 1}, gcra.Charge{Policy: "try", Limit: two, Cost: 1, Shadow: true}),
			want: results(pass(1, 4*s), deny(0, 2*s, 1*s))},
		{ask: all(gcra.Charge{Policy: "try", Limit: two, Peek: true}, gcra.Charge{Policy: "real", Peek: true}), want: results(pass(0, 2*s), pass(1, 4*s))},
		// The enforced limit denies: the shadow is allowed and not charged.
		{at: 2 * s, ask: all(gcra.Charge{Policy: "try", Limit: two, Cost: 1, Shadow: true}, gcra.Charge{Policy: "real", Cost: 4}),
			want: results(pass(2, 0), deny(3, 2*s, 1*s))},
		{at: 2 * s, ask: all(gcra.Charge{Policy: "real", Cost: 4}, gcra.Charge{Policy: "try", Limit: two, Cost: 1, Shadow: true}),
			want: results(deny(3, 2*s, 1*s), pass(2, 0))},
		{at: 2 * s, ask: all(gcra.Charge{Policy: "try", Limit: two, Peek: true}, gcra.Charge{Policy: "real", Peek: true}), want: results(pass(2, 0), pass(3, 2*s))},
	}},

	// The same with different subjects, which may be on different servers.
	{"a shadow on another subject", fiveASecond, []step{
		{ask: all(gcra.Charge{Subject: "try", Limit: two, Cost: 2, Shadow: true}, gcra.Charge{Subject: "real", Cost: 1}),
			want: results(pass(0, 2*s), pass(4, 1*s))},
		{ask: all(gcra.Charge{Subject: "try", Limit: two, Cost: 1, Shadow: true}, gcra.Charge{Subject: "real", Cost: 1}),
			want: results(deny(0, 2*s, 1*s), pass(3, 2*s))},
		{at: s, ask: all(gcra.Charge{Subject: "try", Limit: two, Cost: 1, Shadow: true}, gcra.Charge{Subject: "real", Cost: 5}),
			want: results(pass(1, 1*s), deny(4, 1*s, 1*s))},
		{at: s, ask: all(gcra.Charge{Subject: "try", Limit: two, Peek: true}, gcra.Charge{Subject: "real", Peek: true}), want: results(pass(1, 1*s), pass(4, 1*s))},
	}},

	// An admission of shadows only passes, and charges those whose own limit allows
	// them.
	{"shadows only", fiveASecond, []step{
		{ask: all(gcra.Charge{Policy: "a", Cost: 5, Shadow: true}, gcra.Charge{Policy: "b", Cost: 6, Shadow: true}),
			want: results(pass(0, 5*s), never(5, 0))},
		{ask: all(gcra.Charge{Policy: "a", Cost: 1, Shadow: true}, gcra.Charge{Policy: "b", Cost: 1, Shadow: true}),
			want: results(deny(0, 5*s, 1*s), pass(4, 1*s))},
		{ask: all(gcra.Charge{Policy: "a", Peek: true}, gcra.Charge{Policy: "b", Peek: true}), want: results(pass(0, 5*s), pass(4, 1*s))},
	}},

	// A shadow on the bucket of an enforced charge counts in order.
	{"a shadow on the same bucket", fiveASecond, []step{
		{ask: all(gcra.Charge{Cost: 4}, gcra.Charge{Cost: 2, Shadow: true}, gcra.Charge{Cost: 1}),
			want: results(pass(1, 4*s), deny(1, 4*s, 1*s), pass(0, 5*s))},
		{ask: peek(), want: passes(0, 5*s)},
	}},
}
