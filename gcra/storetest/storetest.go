// Package storetest tests the contract of a [gcra.Store]. A store calls it in its
// own tests:
//
//	storetest.Run(t, func(t testing.TB) storetest.Backend { ... })
//
// A store with another algorithm than package gcra sets Backend.Algorithm. The CheckLimit of
// a store that keeps no quotas says so: see [gcra.Store].
package storetest

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Where to change what: most of the contract is tables of steps: when charges come, what they are, and
// the results, below a comment with the rule. step.go defines them; single.go, group.go, shadow.go,
// refund.go, queue.go, change.go and sliding.go hold them. The rest is code: invalid.go, reset.go,
// names.go, quota.go and concurrent.go.

// Backend is an empty store and its properties.
type Backend struct {
	Store gcra.Store

	// Advance moves the store's time by d, which may be negative. If the clock of
	// a store cannot be set, move its stored times by -d instead.
	Advance func(d time.Duration)

	// Exact means that only Advance moves the time, so results are compared to the
	// tick. Advance is then also called while Take runs, unless Algorithm is Other.
	Exact bool

	// Remembers means that the store may answer from a cache of earlier results, as
	// a denial cache does. Parts in which the clock goes back are then left out.
	Remembers bool

	// The zero value is [GCRA].
	Algorithm Algorithm
}

// Algorithm says how a store decides, and so which parts of the contract apply.
type Algorithm int

const (
	// GCRA is the algorithm of package gcra.
	GCRA Algorithm = iota

	// Sliding passes at most Count units in any window of length Per, and requires
	// Burst to be 0 or Count.
	Sliding

	// Other passes at most Burst units at one time. Only the parts run that depend on neither
	// GCRA nor sliding windows.
	Other
)

const anyAlgorithm Algorithm = -1

// remembersDenials is why a store that remembers is not tested with a clock that goes back.
const remembersDenials = "remembered denials may outlast a clock that goes back"

// Run runs the contract. It calls open for each part; open returns a store without
// keys and closes it with t.Cleanup.
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
		{"no charges", anyAlgorithm, noCharges},
		{"context done", anyAlgorithm, contextDone},
		{"resets", anyAlgorithm, resets},
		{"many charges", anyAlgorithm, manyCharges},
		{"hostile names", anyAlgorithm, hostileNames},
		{"exactly the burst passes", anyAlgorithm, burstPasses},
		{"groups under contention", anyAlgorithm, contendedGroups},
		{"bound over any window", GCRA, boundOfInterval},
		{"no window holds more", Sliding, boundOfWindow},
	} {
		part(tt.name, tt.algorithm, false, tt.run)
	}

	for _, tt := range []struct {
		name  string
		keeps bool // the store keeps quotas
		exact bool
		run   func(*testing.T, Backend)
	}{
		{"no quotas", false, false, noQuotas},
		{"quotas", true, false, quotas},
		{"quotas under one name", true, false, quotasApart},
		{"quotas in groups", true, false, quotasInGroups},
		{"invalid quotas", true, false, invalidQuotas},
		{"quotas by the clock", true, true, quotaPeriods},
		{"quotas while the clock goes back", true, true, quotasWhileTheClockGoesBack},
	} {
		part(tt.name, anyAlgorithm, tt.exact, func(t *testing.T, b Backend) {
			switch keeps := keepsQuotas(b); {
			case keeps && !tt.keeps:
				t.Skip("the store keeps quotas")
			case !keeps && tt.keeps:
				t.Skip("the store keeps no quotas")
			}
			tt.run(t, b)
		})
	}
}
