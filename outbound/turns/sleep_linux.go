package turns

import (
	"syscall"
	"time"
)

// sleepPrecise blocks the thread for d, to a tenth of a millisecond. A signal ends
// it early.
func sleepPrecise(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil)
}
