//go:build !linux

package turns

import "time"

// sleepPrecise returns at once: sleep then waits by a timer.
func sleepPrecise(time.Duration) {}
