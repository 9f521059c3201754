// Package storetest is the contract that every [gcra.Store] keeps. A store
// joins by one line in its tests:
//
//	storetest.Run(t, func(t testing.TB) storetest.Backend { ... })
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
}

// Run runs the contract. Open is called for each part of it and returns a store
// without any keys; what it opens, it closes with t.Cleanup.
func Run(t *testing.T, open func(t testing.TB) Backend) {
	t.Helper()
	for _, tt := range tables {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, open(t)) })
	}
	for _, tt := range exactTables {
		t.Run(tt.name, func(t *testing.T) {
			b := open(t)
			if !b.Exact {
				t.Skip("time passes by itself")
			}
			tt.run(t, b)
		})
	}
	for _, tt := range []struct {
		name string
		run  func(*testing.T, Backend)
	}{
		{"spending all of 300", spendAll},
		{"invalid charges", invalidCharges},
		{"nothing to take", nothingToTake},
		{"context done", contextDone},
		{"many charges", manyCharges},
		{"hostile names", hostileNames},
		{"exactly the burst passes", exactlyTheBurst},
		{"groups under contention", contendedGroups},
		{"bound over any window", boundOverAnyWindow},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, open(t)) })
	}
}
