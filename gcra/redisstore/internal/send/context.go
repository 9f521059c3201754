package send

import (
	"context"
	"sync"
	"time"
)

// deadlineContext is a context with a deadline and without a timer: the client
// bounds dialling and, where its options say so, reading by the deadline.
type deadlineContext struct {
	context.Context
	deadline time.Time
}

func (c deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// A callTimer makes contexts that end at their deadline, one after another. Those of context.WithTimeout cost a lone caller
// 3 % of its time, and a timer that is set for each call 1 %. So it is set for the first call and, when it fires, for the
// one that is under way then.
type callTimer struct {
	timer *time.Timer

	mu       sync.Mutex
	fires    time.Time     // zero if the timer is not set
	deadline time.Time     // of the call under way; zero if there is none
	done     chan struct{} // closed at the deadline
}

func newCallTimer() *callTimer {
	t := &callTimer{done: make(chan struct{})}
	t.timer = time.AfterFunc(time.Hour, t.fire)
	t.timer.Stop()
	return t
}

// start returns a context that ends at the deadline, d from now. It must not be used after stop.
func (t *callTimer) start(deadline time.Time, d time.Duration) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.deadline = deadline
	if t.fires.IsZero() || deadline.Before(t.fires) {
		t.fires = deadline
		t.timer.Reset(d)
	}
	return &timedContext{deadlineContext{context.Background(), deadline}, t.done}
}

// stop ends the use of the context.
func (t *callTimer) stop() {
	t.mu.Lock()
	t.deadline = time.Time{}
	t.mu.Unlock()
}

func (t *callTimer) fire() {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.fires = time.Time{}
	if t.deadline.IsZero() {
		return
	}
	if left := time.Until(t.deadline); left > 0 {
		t.fires = t.deadline
		t.timer.Reset(left)
		return
	}
	close(t.done)
	t.done, t.deadline = make(chan struct{}), time.Time{}
}

type timedContext struct {
	deadlineContext
	done <-chan struct{}
}

func (c *timedContext) Done() <-chan struct{} { return c.done }

func (c *timedContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
