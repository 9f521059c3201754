package storetest

import "github.com/seed-e377111c/ratelimit/gcra"

var shadowTables = []table{
	// A shadow refuses nobody, and is charged as if it counted: when its own
	// limit and all enforced ones admit.
	{"a shadow beside an enforced limit", fiveASecond, []step{
		{ask: all(gcra.Charge{Policy: "try", Limit: two, Cost: 1, Shadow: true}, gcra.Charge{Policy: "real", Cost: 1}),
			want: results(pass(1, 1*s), pass(4, 1*s))},
		{ask: all(gcra.Charge{Policy: "real", Cost: 1}, gcra.Charge{Policy: "try", Limit: two, Cost: 1, Shadow: true}),
			want: results(pass(3, 2*s), pass(0, 2*s))},
		// Its own limit refuses: it says so, is not charged, and the other is.
		{ask: all(gcra.Charge{Policy: "try", Limit: two, Cost: 1, Shadow: true}, gcra.Charge{Policy: "real", Cost: 1}),
			want: results(refuse(0, 2*s, 1*s), pass(2, 3*s))},
		{ask: all(gcra.Charge{Policy: "real", Cost: 1}, gcra.Charge{Policy: "try", Limit: two, Cost: 1, Shadow: true}),
			want: results(pass(1, 4*s), refuse(0, 2*s, 1*s))},
		{ask: all(gcra.Charge{Policy: "try", Limit: two}, gcra.Charge{Policy: "real"}), want: results(pass(0, 2*s), pass(1, 4*s))},
		// The enforced limit refuses: the shadow admits and is not charged.
		{at: 2 * s, ask: all(gcra.Charge{Policy: "try", Limit: two, Cost: 1, Shadow: true}, gcra.Charge{Policy: "real", Cost: 4}),
			want: results(pass(2, 0), refuse(3, 2*s, 1*s))},
		{at: 2 * s, ask: all(gcra.Charge{Policy: "real", Cost: 4}, gcra.Charge{Policy: "try", Limit: two, Cost: 1, Shadow: true}),
			want: results(refuse(3, 2*s, 1*s), pass(2, 0))},
		{at: 2 * s, ask: all(gcra.Charge{Policy: "try", Limit: two}, gcra.Charge{Policy: "real"}), want: results(pass(2, 0), pass(3, 2*s))},
	}},

	// The same where subjects differ, which may mean different servers.
	{"a shadow on another subject", fiveASecond, []step{
		{ask: all(gcra.Charge{Subject: "try", Limit: two, Cost: 2, Shadow: true}, gcra.Charge{Subject: "real", Cost: 1}),
			want: results(pass(0, 2*s), pass(4, 1*s))},
		{ask: all(gcra.Charge{Subject: "try", Limit: two, Cost: 1, Shadow: true}, gcra.Charge{Subject: "real", Cost: 1}),
			want: results(refuse(0, 2*s, 1*s), pass(3, 2*s))},
		{at: s, ask: all(gcra.Charge{Subject: "try", Limit: two, Cost: 1, Shadow: true}, gcra.Charge{Subject: "real", Cost: 5}),
			want: results(pass(1, 1*s), refuse(4, 1*s, 1*s))},
		{at: s, ask: all(gcra.Charge{Subject: "try", Limit: two}, gcra.Charge{Subject: "real"}), want: results(pass(1, 1*s), pass(4, 1*s))},
	}},

	// An admission of shadows only always passes, and charges each whose own
	// limit admits; one that can never pass is never charged.
	{"shadows only", fiveASecond, []step{
		{ask: all(gcra.Charge{Policy: "a", Cost: 5, Shadow: true}, gcra.Charge{Policy: "b", Cost: 6, Shadow: true}),
			want: results(pass(0, 5*s), never(5, 0))},
		{ask: all(gcra.Charge{Policy: "a", Cost: 1, Shadow: true}, gcra.Charge{Policy: "b", Cost: 1, Shadow: true}),
			want: results(refuse(0, 5*s, 1*s), pass(4, 1*s))},
		{ask: all(gcra.Charge{Policy: "a"}, gcra.Charge{Policy: "b"}), want: results(pass(0, 5*s), pass(4, 1*s))},
	}},

	// A shadow that shares its bucket with an enforced charge takes its turn.
	{"a shadow on the same bucket", fiveASecond, []step{
		{ask: all(gcra.Charge{Cost: 4}, gcra.Charge{Cost: 2, Shadow: true}, gcra.Charge{Cost: 1}),
			want: results(pass(1, 4*s), refuse(1, 4*s, 1*s), pass(0, 5*s))},
		{ask: one(0), want: passes(0, 5*s)},
	}},
}
