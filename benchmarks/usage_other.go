//go:build !linux

package main

import "time"

var started = time.Now()

// threadCPU is the time that has passed, where no clock tells the CPU time of a thread:
// the same for a thread that never waits, on a machine with nothing else to do.
func threadCPU() time.Duration { return time.Since(started) }

// ownCPU is the time that has passed, too. It leaves out what other threads do meanwhile.
func ownCPU() time.Duration { return time.Since(started) }
