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

// requestState is what one limiter knows about one request: the charges and their
// status, the Decision, and the headers. It is also a context. The request carries
// it to the handlers, which find the Decision in it, and to limiters further in,
// which find what this one charged and wrote.
//
// The limiter that claims it owns it. Until that limiter hands out the Decision, to
// an observer or to its caller, only the goroutine of Allow or Decide may use any
// field but Context and framework. From then on all fields are read-only, except for
// those that mu guards. Limiters further in and FromContext look at a state only
// when its phase is settled or refunded.
//
// Its methods are those of a context and simple accessors. The other files have
// functions that take the state.
type requestState struct {
	context.Context     // parent: of the request without this state
	framework       any // see WithRoute

	policies *policies // of the limiter, when the request came
	entries  []entry   // of the policies that apply, in order
	charges  []gcra.Charge
	written  written
	decision *Decision // see decisionOf

	// What the Decision is made of, beside the results of the charges.
	decided, allowed bool
	observed         bool          // observers may keep the Decision
	retryAfter       int32         // seconds; 0 if allowed or if no wait helps
	delay            time.Duration // 0 if denied
	took             time.Duration
	err              error

	mu    sync.Mutex // guards entry.status, Result.Taken of a charge, decision, and written until the phase is settled
	phase atomic.Uint32

	// Room for one policy: no allocations beside the state.
	oneEntry  [1]entry
	oneCharge [1]gcra.Charge
}

// The phases of a requestState.
const (
	claimed  = iota // a limiter is deciding
	fresh           // made by WithRoute, free to be claimed
	settled         // the Decision stands, and the headers are set
	refunded        // as settled, and the charges are refunded
)

// entry is what a requestState keeps about the charge at the same index.
type entry struct {
	policy uint8     // index in policies.list
	key    keyNotice // what the policy's Key reported
	source source
	status chargeStatus
}

// keyNotice is why a key may be empty.
type keyNotice uint8

const (
	noNotice  keyNotice = iota
	noUser              // Key looked for a user and found none
	noRoute             // Key looked for the route and found none
	explained           // Key reported another problem, which is logged
)

// chargeStatus says whether a charge was decided and taken.
type chargeStatus uint8

const (
	undecided chargeStatus = iota
	decided                // its Result counts
	charged                // its Result counts, and its Result.Taken units are not refunded
)

// policy is the policy of the charge at index i.
func (s *requestState) policy(i int) *policy { return s.policies.list[s.entries[i].policy] }

// shown reports whether clients see the charge at index i in the RateLimit fields. That of
// a ban may have no limit.
func (s *requestState) shown(i int) bool {
	return s.entries[i].status != undecided && !s.charges[i].Shadow && s.charges[i].Limit.Capacity() > 0
}

// store is the store that charges with this source are taken from.
func (s *requestState) store(from source) gcra.Store {
	if from == sourceLocal {
		return s.policies.limiter.local
	}
	return s.policies.limiter.store
}

// makeRoom makes room for the entries and charges of n policies: without an
// allocation for one policy, with one for up to four.
func (s *requestState) makeRoom(n int) {
	switch {
	case n == 1:
		s.entries, s.charges = s.oneEntry[:0], s.oneCharge[:0]
	case n <= 4:
		room := new(struct {
			entries [4]entry
			charges [4]gcra.Charge
		})
		s.entries, s.charges = room.entries[:0], room.charges[:0]
	default:
		s.entries, s.charges = make([]entry, 0, n), make([]gcra.Charge, 0, n)
	}
}

// stateKey finds the innermost requestState in a context.
type stateKey struct{}

// Value finds the state through contexts that wrap it, and the receiver of key
// functions' reports while they run.
func (s *requestState) Value(key any) any {
	switch key.(type) {
	case stateKey:
		return s
	case notice.Key:
		if s.evaluating() {
			return (*noticeReceiver)(s)
		}
	}
	return s.Context.Value(key)
}

// evaluating reports whether a policy's functions are running.
func (s *requestState) evaluating() bool {
	return s.policies != nil && !s.decided && len(s.entries) > 0
}

// uncancelled returns the context for the store, which does not end with the
// request: a client must not avoid a charge by hanging up.
func (s *requestState) uncancelled() context.Context {
	return (*uncancelled)(s)
}

// uncancelled is a requestState as a context, as of context.WithoutCancel, without
// an allocation.
type uncancelled requestState

func (*uncancelled) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*uncancelled) Done() <-chan struct{}                   { return nil }
func (*uncancelled) Err() error                              { return nil }
func (u *uncancelled) Value(key any) any                     { return (*requestState)(u).Value(key) }

// stateIn returns the innermost requestState in the context, or nil.
func stateIn(ctx context.Context) *requestState {
	s, _ := ctx.Value(stateKey{}).(*requestState)
	return s
}

// settledIn returns the innermost requestState with a Decision, or nil.
func settledIn(ctx context.Context) *requestState { return settledFrom(stateIn(ctx)) }

// settledFrom is settledIn, from a state on outwards.
func settledFrom(s *requestState) *requestState {
	for ; s != nil; s = stateIn(s.Context) {
		if s.phase.Load() >= settled {
			return s
		}
	}
	return nil
}

// requestWithState is a requestState with the copy of the request that carries
// it, in one allocation.
type requestWithState struct {
	state   requestState
	request http.Request
}

// withState returns a copy of the request with a new requestState.
func withState(r *http.Request, framework any) (*http.Request, *requestState) {
	c := new(requestWithState)
	c.state.Context, c.state.framework = r.Context(), framework //nolint:fatcontext // one more context per limiter
	c.request = *r.WithContext(&c.state)
	return &c.request, &c.state
}

// claim returns the request with a requestState that is the caller's: the fresh
// one that WithRoute made, or else a new one. outer is the next state further
// out, or nil.
func claim(r *http.Request) (_ *http.Request, s, outer *requestState) {
	outer = stateIn(r.Context())
	if outer != nil && outer.phase.CompareAndSwap(fresh, claimed) {
		return r, outer, stateIn(outer.Context)
	}
	r, s = withState(r, frameworkOf(outer))
	return r, s, outer
}

// WithRoute returns a copy of the request for a limiter. Its Pattern is the route that
// will serve the request, in the syntax of a ServeMux, or "" if the route is not known.
// It carries c, a framework's own context, for the key functions of that framework's
// adapter; a nil c leaves what the request carries. [Limiter.Allow] keeps its Decision in
// the same copy, so each request is copied once.
func WithRoute(r *http.Request, pattern string, c any) *http.Request {
	if c == nil {
		c = Framework(r.Context())
	}
	r, s := withState(r, c)
	r.Pattern = pattern
	s.phase.Store(fresh)
	return r
}

// Framework returns the value given to [WithRoute], or nil.
func Framework(ctx context.Context) any { return frameworkOf(stateIn(ctx)) }

func frameworkOf(s *requestState) any {
	if s == nil {
		return nil
	}
	return s.framework
}

// FromContext returns the Decision of the innermost limiter that allowed or
// denied the request, or nil if there is none. Refund, Spend and Settle of a nil Decision do nothing, so handlers may call them
// without a check.
func FromContext(ctx context.Context) *Decision {
	if s := settledIn(ctx); s != nil {
		return decisionOf(s)
	}
	return nil
}
