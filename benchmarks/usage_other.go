//go:build !linux

package main

import "time"

var started = time.Now()

// threadCPU is the time of day where no clock tells the CPU time of a thread: the
// same on a machine with nothing else to do.
func threadCPU() time.Duration { return time.Since(started) }

// ownCPU is likewise.
func ownCPU() time.Duration { return time.Since(started) }
