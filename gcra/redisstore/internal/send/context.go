package send

import (
	"context"
	"time"
)

// deadlineContext is a context with a deadline and without a timer: the client
// bounds dialling and, where its options say so, reading by the deadline.
type deadlineContext struct {
	context.Context
	deadline time.Time
}

func (c deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// A callTimer makes contexts that end at their deadline, one after another, from one timer
// and one channel. Those of context.WithTimeout cost a lone caller 3 % of its time.
type callTimer struct {
	timer *time.Timer
	done  chan struct{} // closed when the timer fires
}

// start returns a context that ends after d. It must not be used after stop.
func (t *callTimer) start(d time.Duration) context.Context {
	if t.timer == nil {
		done := make(chan struct{})
		t.timer, t.done = time.AfterFunc(d, func() { close(done) }), done
	} else {
		t.timer.Reset(d)
	}
	return &timedContext{deadlineContext{context.Background(), time.Now().Add(d)}, t.done}
}

// stop ends the use of the context. A channel that is closed is not used again.
func (t *callTimer) stop() {
	if !t.timer.Stop() {
		*t = callTimer{}
	}
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
