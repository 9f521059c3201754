package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadCPU is the CPU time that the calling thread has used.
func threadCPU() time.Duration { return cpuClock(unix.CLOCK_THREAD_CPUTIME_ID) }

// ownCPU is the CPU time that this process has used, on all its threads.
func ownCPU() time.Duration { return cpuClock(unix.CLOCK_PROCESS_CPUTIME_ID) }

func cpuClock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		panic(err) // every Linux has these clocks
	}
	return time.Duration(t.Nano())
}
