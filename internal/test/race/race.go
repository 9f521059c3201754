// Package race tells tests whether the race detector is on.
package race

import "testing"

// Skip skips a test of one goroutine under the race detector, which finds nothing there and
// makes arithmetic ten times as slow. CI runs all tests without the detector, too.
func Skip(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("one goroutine: nothing to find for the race detector")
	}
}
