//go:build !linux

package turns

import "time"

const hasPrecise = false

func sleepPrecise(time.Duration) {}
