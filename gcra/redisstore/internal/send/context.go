package send

import (
	"context"
	"time"
)

// A tripContext is the context of a batch's trip. A context of context.WithTimeout would cost a lone caller 3 % of its time.
//
// It ends only for a client that bounds calls. Others go on with a dial and a handshake when the time is up, so that the
// calls after this one have the connection. If the context ended, they would give up before the handshake, and where dial and
// handshake together take longer than the Timeout, one more call would fail for each connection.
type tripContext struct {
	context.Context
	deadline time.Time
	done     <-chan struct{} // closed at the deadline, or nil
}

func (c *tripContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *tripContext) Done() <-chan struct{} { return c.done }

func (c *tripContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
