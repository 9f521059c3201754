package gcra

import (
	"sync"
	"time"
)

// watchdog calls a function unless it is stopped in time. It is a timer that
// tells for certain which of the two came first, and costs nothing to use
// again.
type watchdog struct {
	mu       sync.Mutex
	timer    *time.Timer
	deadline time.Time
	expire   func() // nil when stopped or expired
}

func (w *watchdog) start(d time.Duration, expire func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline, w.expire = time.Now().Add(d), expire
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.bark)
	} else {
		w.timer.Reset(d)
	}
}

// stop reports whether it came before the function was called.
func (w *watchdog) stop() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	inTime := w.expire != nil
	w.expire = nil
	w.timer.Stop()
	return inTime
}

func (w *watchdog) bark() {
	w.mu.Lock()
	expire := w.expire
	if time.Now().Before(w.deadline) {
		expire = nil // for an earlier start, which was stopped just then
	} else {
		w.expire = nil
	}
	w.mu.Unlock()
	if expire != nil {
		expire()
	}
}
