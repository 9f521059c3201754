// Package race tells tests whether the race detector is on.
package race

import "testing"

// Skip skips a test of one goroutine, or of much memory, under the race detector, which finds
// nothing there and makes arithmetic ten times as slow. CI runs all tests that need no server
// without the detector, too.
func Skip(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("nothing to find for the race detector")
	}
}
