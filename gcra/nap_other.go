//go:build !linux

package gcra

import "time"

const canNap = false

func nap(time.Duration) {}
