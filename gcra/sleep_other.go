//go:build !linux

package gcra

import "time"

const hasPrecise = false

func sleepPrecise(time.Duration) {}
