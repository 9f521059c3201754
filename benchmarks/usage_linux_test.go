package main

import (
	"syscall"
	"time"
)

// threadCPU is the CPU time that the calling thread has used.
func threadCPU() time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		panic(err) // every Linux knows it
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
