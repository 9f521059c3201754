//go:build !linux

package main

import "time"

var started = time.Now()

// threadCPU is the time that has passed, where no clock tells the CPU time of a thread.
func threadCPU() time.Duration { return time.Since(started) }
