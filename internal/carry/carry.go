// Package carry attaches a framework's context and a route to a request, and reserves room for the first
// limiter's state, so that the limiter need not copy the request again.
package carry

import (
	"context"
	"net/http"
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

// carried is a Carrier with a framework's context.
type carried[C any] struct {
	Carrier
	framework C
	request   http.Request
}

// frameworkKey finds the innermost context of a type.
type frameworkKey[C any] struct{}

func (c *carried[C]) Value(key any) any {
	if key == (frameworkKey[C]{}) {
		return c
	}
	return c.Carrier.Value(key)
}

// With returns a copy of the request with a Carrier, in one allocation.
func With[C any](r *http.Request, pattern string, framework C) *http.Request {
	c := &carried[C]{framework: framework}
	c.Context = r.Context()
	c.request = *r.WithContext(c)
	c.request.Pattern = pattern
	return &c.request
}

// Framework returns what With was given, and whether there is one of this type.
func Framework[C any](ctx context.Context) (framework C, ok bool) {
	if c, ok := ctx.Value(frameworkKey[C]{}).(*carried[C]); ok {
		return c.framework, true
	}
	return framework, false
}
