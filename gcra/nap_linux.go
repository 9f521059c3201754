package gcra

import (
	"syscall"
	"time"
)

const canNap = true

// nap blocks the thread for d, to a tenth of a millisecond. A signal ends it
// early.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil)
}
