package middleware

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/notice"
)

// visit is one request at one limiter: what it was charged, the Decision, and
// what the request carries of both. It is the request's context too.
type requestState struct {
	context.Context     // what the request had before
	framework       any // the framework's own context, see WithFramework

	policies *policies // what it is decided by
	entries  []entry   // of the policies that applied, in order
	charges  []gcra.Charge
	decision Decision
	written  written

	mu    sync.Mutex // once the visit is settled, of all that still changes
	phase atomic.Uint32

	// Room for a single policy, and for the fields of HeadersDraft6.
	oneEntry  [1]entry
	oneCharge [1]gcra.Charge
	values    [4]string
}

// carrier is a visit with the copy of the request that carries it: one
// allocation of 704 bytes (8 are the allocator's), which is a size that it has.
type requestWithState struct {
	state   requestState
	request http.Request
}

// few is room for the policies of most limiters that have more than one.
type few struct {
	entries [4]entry
	charges [4]gcra.Charge
}

// makeRoom gives the visit room for n policies.
func (v *requestState) makeRoom(n int) {
	switch {
	case n == 1:
		v.entries, v.charges = v.oneEntry[:0], v.oneCharge[:0]
	case n <= 4:
		f := new(few)
		v.entries, v.charges = f.entries[:0], f.charges[:0]
	default:
		v.entries, v.charges = make([]entry, 0, n), make([]gcra.Charge, 0, n)
	}
}

// The stages of a visit. What it holds beside the framework's context is its
// limiter's until it is settled.
const (
	fresh    = iota // no limiter has seen it
	claimed         // one is deciding
	settled         // the Decision stands, and the client's fields are set
	refunded        // and all is given back
)

// entry is what a visit keeps about a charge.
type entry struct {
	policy uint8 // which of the visit's policies
	key    hint  // what the policy's Key has reported
	source source
	status chargeStatus
}

// hint is why a key may be empty.
type hint uint8

const (
	noHint    hint = iota
	noUser         // Key has looked for a user and found none
	noRoute        // Key has looked for the route and found none
	explained      // Key has reported a problem, which is logged
)

// state is what has come of a charge.
type chargeStatus uint8

const (
	undecided chargeStatus = iota
	decided                // its Result counts
	charged                // and its Cost has been taken, and not given back
)

// policy is the policy of the charge at index i.
func (v *requestState) policy(i int) *policy { return v.policies.list[v.entries[i].policy] }

// detached is a visit as a context that does not end with the request: hanging
// up must not be a way to be served by the store for nothing.
type undying requestState

func (d *undying) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (d *undying) Done() <-chan struct{}                   { return nil }
func (d *undying) Err() error                              { return nil }
func (d *undying) Value(key any) any                       { return (*requestState)(d).Value(key) }

// visitKey finds the innermost visit in a context.
type stateKey struct{}

// Value makes the visit findable, whatever contexts others put on top.
func (v *requestState) Value(key any) any {
	switch key.(type) {
	case stateKey:
		return v
	case notice.Key:
		if v.evaluating() {
			return v
		}
	}
	return v.Context.Value(key)
}

func stateIn(ctx context.Context) *requestState {
	v, _ := ctx.Value(stateKey{}).(*requestState)
	return v
}

// settledIn finds the innermost visit that has been decided.
func settledIn(ctx context.Context) *requestState {
	for v := stateIn(ctx); v != nil; v = stateIn(v.Context) {
		if v.phase.Load() >= settled {
			return v
		}
	}
	return nil
}

// visitOf gives the request a visit of its own: the one that WithFramework
// prepared, unless a limiter has it already, or a new one. It also returns the
// visit before that, or nil.
func claim(r *http.Request) (_ *http.Request, own, outer *requestState) {
	outer = stateIn(r.Context())
	if outer != nil && outer.phase.CompareAndSwap(fresh, claimed) {
		return r, outer, stateIn(outer.Context)
	}
	var framework any
	if outer != nil {
		framework = outer.framework
	}
	r, v := withState(r, framework)
	v.phase.Store(claimed)
	return r, v, outer
}

// carry returns a copy of the request that carries a new visit.
func withState(r *http.Request, framework any) (*http.Request, *requestState) {
	c := new(requestWithState)
	c.state.Context, c.state.framework = r.Context(), framework //nolint:fatcontext // a visit is one context more, once
	c.request = *r.WithContext(&c.state)
	return &c.request, &c.state
}

// WithFramework returns a copy of the request that carries a framework's own
// context c, for the key functions of that framework's adapter; with nil it
// goes on carrying what it did. The limiter that the copy is given to keeps its
// Decision in the same place, so an adapter that calls WithFramework first
// copies the request only once. The copy is the adapter's to change: it sets
// Pattern to the route that will serve the request.
func WithFramework(r *http.Request, c any) *http.Request {
	if c == nil {
		c = Framework(r.Context())
	}
	r, _ = withState(r, c)
	return r
}

// Framework returns what WithFramework was given, or nil.
func Framework(ctx context.Context) any {
	if v := stateIn(ctx); v != nil {
		return v.framework
	}
	return nil
}

// FromContext returns the Decision of the innermost limiter that the request
// has passed, or nil if there was none. Refund and Spend of a nil Decision do
// nothing, so a handler that calls them need not know whether it is limited.
func FromContext(ctx context.Context) *Decision {
	if v := settledIn(ctx); v != nil {
		return v.decisionWithResults()
	}
	return nil
}
