// Package carry reserves room in a request's context for the first limiter's state, so that the limiter need
// not copy the request again.
package carry

import (
	"context"
	"sync/atomic"
)

// Carrier is a context of a request, with a place for the state of a limiter.
type Carrier struct {
	context.Context // of the request without the Carrier
	state           atomic.Pointer[context.Context]
}

// Key finds a Carrier that no limiter has claimed. A limiter's state hides those around it.
type Key struct{}

// Value asks the limiter that has claimed the Carrier, if one has.
func (c *Carrier) Value(key any) any {
	s := c.state.Load()
	switch {
	case s != nil:
		return (*s).Value(key)
	case key == (Key{}):
		return c
	}
	return c.Context.Value(key)
}

// Claim puts a limiter's state, whose parent is the Carrier's, into a Carrier. It returns false if another
// limiter was first.
func (c *Carrier) Claim(s *context.Context) bool { return c.state.CompareAndSwap(nil, s) }
