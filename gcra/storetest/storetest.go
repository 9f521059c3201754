// Package storetest is the contract that every [gcra.Store] keeps. A store
// joins by one line in its tests:
//
//	storetest.Run(t, func(t testing.TB) storetest.Backend { ... })
//
// Stores that decide by another algorithm than package gcra's keep the parts that
// are not about that algorithm (see [Algorithm]).
//
// Most of it is data: steps that say when a charge comes, what it asks and what
// must be answered, under a sentence that says the rule. The rest is failure,
// hostile names and concurrency.
package storetest

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Backend is an empty store and what the contract needs to drive it.
type Backend struct {
	Store gcra.Store

	// Advance moves the store's time by d, back where d is negative. A store
	// whose clock cannot be set moves what it has stored the other way instead,
	// which is the same to it.
	Advance func(d time.Duration)

	// Exact says that time stands still but for Advance, so that answers are
	// compared to the tick. Advance is then also called while Take runs.
	// Otherwise time passes by itself too, and the durations answered may be
	// shorter by as much as has really passed.
	Exact bool

	// Remembers says that the store may answer from what it remembers of an
	// earlier trip. The durations it answers may then also be longer, by the time
	// of that trip.
	Remembers bool

	// Algorithm is the one by which the store decides; the zero value is [GCRA].
	Algorithm Algorithm
}

// Algorithm is how a store decides what a limit lets pass, and so which parts of
// the contract it keeps.
type Algorithm int

const (
	// GCRA is the algorithm of package gcra: all of the contract.
	GCRA Algorithm = iota

	// Sliding lets at most Count units pass in any window of length Per, and
	// needs a Burst that is Count: the parts without a queue, as far as no time
	// passes and but for durations, and those about sliding windows.
	Sliding

	// Other lets at most Burst units pass at one moment: the parts of Sliding
	// that are not about sliding windows.
	Other
)

const anyAlgorithm Algorithm = -1

// Run runs the contract. Open is called for each part of it and returns a store
// without any keys; what it opens, it closes with t.Cleanup.
func Run(t *testing.T, open func(t testing.TB) Backend) {
	t.Helper()
	part := func(name string, only Algorithm, exact bool, run func(*testing.T, Backend)) {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			switch {
			case only != anyAlgorithm && only != b.Algorithm:
				t.Skip("the store has another algorithm")
			case exact && !b.Exact:
				t.Skip("time passes by itself")
			}
			run(t, b)
		})
	}
	for _, tt := range tables {
		part(tt.name, anyAlgorithm, false, func(t *testing.T, b Backend) { tt.run(t, b, b.Algorithm != GCRA) })
	}
	for _, set := range []struct {
		algorithm Algorithm
		exact     bool
		tables    []table
	}{{GCRA, false, gcraTables}, {Sliding, false, slidingTables}, {GCRA, true, exactTables}, {Sliding, true, exactSlidingTables}} {
		for _, tt := range set.tables {
			part(tt.name, set.algorithm, set.exact, func(t *testing.T, b Backend) { tt.run(t, b, false) })
		}
	}
	for _, tt := range []struct {
		name      string
		algorithm Algorithm
		run       func(*testing.T, Backend)
	}{
		{"spending all of 300", GCRA, spendAll},
		{"invalid charges", anyAlgorithm, invalidCharges},
		{"nothing to take", anyAlgorithm, nothingToTake},
		{"context done", anyAlgorithm, contextDone},
		{"resets", anyAlgorithm, resets},
		{"many charges", anyAlgorithm, manyCharges},
		{"hostile names", anyAlgorithm, hostileNames},
		{"exactly the burst passes", anyAlgorithm, exactlyTheBurst},
		{"groups under contention", anyAlgorithm, contendedGroups},
		{"bound over any window", GCRA, boundOverAnyWindow},
		{"no window holds more", Sliding, noWindowHoldsMore},
	} {
		part(tt.name, tt.algorithm, false, tt.run)
	}
}
