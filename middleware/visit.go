package middleware

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// visit is one request at one limiter: what it was charged, the Decision, and
// what the request carries of both. It is the request's context too, so that
// all this is one allocation.
type visit struct {
	context.Context     // what the request had before
	framework       any // the framework's own context, see WithFramework
	stage           atomic.Uint32
	refunded        bool
	limiter         *Limiter

	decision Decision
	entries  []entry       // the policies that applied, in order
	charges  []gcra.Charge // theirs, in the same order
	told     told

	mu sync.Mutex // of Refund and Spend: guards refunded, entries[].taken and charges[].Cost

	// Room for a single policy. So a visit stays within 512 bytes, where the
	// allocator's quick path ends.
	oneEntry  [1]entry
	oneCharge [1]gcra.Charge
	oneResult [1]PolicyResult
}

// few is room for the policies of most limiters that have more than one.
type few struct {
	entries [4]entry
	charges [4]gcra.Charge
	results [4]PolicyResult
}

// makeRoom gives the visit room for n policies.
func (v *visit) makeRoom(n int) {
	d := &v.decision
	switch {
	case n == 1:
		v.entries, v.charges, d.Results = v.oneEntry[:0], v.oneCharge[:0], v.oneResult[:0]
	case n <= 4:
		f := new(few)
		v.entries, v.charges, d.Results = f.entries[:0], f.charges[:0], f.results[:0]
	default:
		v.entries, v.charges, d.Results = make([]entry, 0, n), make([]gcra.Charge, 0, n), make([]PolicyResult, 0, n)
	}
}

// The stages of a visit. What it holds beside the framework's context is its
// limiter's until it is settled.
const (
	fresh   = iota // no limiter has seen it
	claimed        // one is deciding
	settled        // the Decision stands, and the client's fields are set
)

// entry is what a visit keeps about a charge.
type entry struct {
	policy  *policy
	way     way
	decided bool // the charge's Result counts
	taken   bool // the charge's Cost has been taken, and not given back
}

// detached is a visit as a context that does not end with the request: hanging
// up must not be a way to be served by the store for nothing.
type detached visit

func (d *detached) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (d *detached) Done() <-chan struct{}                   { return nil }
func (d *detached) Err() error                              { return nil }
func (d *detached) Value(key any) any                       { return (*visit)(d).Value(key) }

// visitKey finds the innermost visit in a context.
type visitKey struct{}

// Value makes the visit findable, whatever contexts others put on top.
func (v *visit) Value(key any) any {
	if _, ok := key.(visitKey); ok {
		return v
	}
	return v.Context.Value(key)
}

func visitIn(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// settledIn finds the innermost visit that has been decided.
func settledIn(ctx context.Context) *visit {
	for v := visitIn(ctx); v != nil; v = visitIn(v.Context) {
		if v.stage.Load() == settled {
			return v
		}
	}
	return nil
}

// visitOf gives the request a visit of its own: the one that WithFramework
// prepared, unless a limiter has it already, or a new one.
func visitOf(r *http.Request) (*http.Request, *visit) {
	outer := visitIn(r.Context())
	if outer != nil && outer.stage.CompareAndSwap(fresh, claimed) {
		return r, outer
	}
	v := &visit{Context: r.Context()}
	if outer != nil {
		v.framework = outer.framework
	}
	v.stage.Store(claimed)
	return r.WithContext(v), v
}

// WithFramework returns a copy of the request that carries a framework's own
// context c, for the key functions of that framework's adapter; with nil it
// goes on carrying what it did. The limiter that the copy is given to keeps its Decision in the same
// place, so an adapter that calls WithFramework first copies the request only
// once. The copy is the adapter's to change: it sets Pattern to the route that
// will serve the request.
func WithFramework(r *http.Request, c any) *http.Request {
	if c == nil {
		c = Framework(r.Context())
	}
	return r.WithContext(&visit{Context: r.Context(), framework: c})
}

// Framework returns what WithFramework was given, or nil.
func Framework(ctx context.Context) any {
	if v := visitIn(ctx); v != nil {
		return v.framework
	}
	return nil
}

// FromContext returns the Decision of the innermost limiter that the request
// has passed, or nil if there was none. The methods of a nil Decision do
// nothing, so a handler need not know whether it is limited.
func FromContext(ctx context.Context) *Decision {
	if v := settledIn(ctx); v != nil {
		return &v.decision
	}
	return nil
}
