package send

import (
	"context"
	"time"
)

// A callContext is the context of a batch's call. A context of context.WithTimeout would cost a lone caller 3 % of its time.
//
// It ends only for a client that bounds calls. Others go on with a dial and a handshake when the time is up, so that the
// calls after this one have the connection. If the context ended, they would give up before the handshake, and where dial and
// handshake together take longer than the Timeout, one more call would fail for each connection.
type callContext struct {
	context.Context
	deadline time.Time
	done     <-chan struct{} // closed at the deadline, or nil
}

func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *callContext) Done() <-chan struct{} { return c.done }

func (c *callContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
