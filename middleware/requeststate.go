package middleware

import (
	"cmp"
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/carry"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
)

// requestState carries a limiter's admission with the request. It is a context: handlers find
// the Decision in it, and inner limiters find what this one charged and wrote. Only this
// file and limiter.go know it.
//
//  1. The first Allow or Admit that gets the request of an adapter puts its state into that request's
//     [carry.Carrier]. A second one, even at the same time, copies the request; Decide and Peek always do.
//  2. Everyone may read Context, which does not change, and settled.
//  3. Until it is settled, only its limiter's goroutine uses the other fields. Observers are the exception:
//     they get the Decision, under the rules of the admission.
//  4. Once it is settled, everyone may read it, and the rules of the admission hold.
//  5. A key function reports to the innermost state alone: by rule 3, the outer ones may be
//     another goroutine's. To find the receiver reads that state. So only a limiter, whose own state
//     is innermost, may call a key function with a request of an adapter that another goroutine may
//     pass to a limiter.
type requestState struct {
	context.Context                 // parent: of the request without this state
	carried         context.Context // is this state, for a Carrier
	settled         atomic.Bool     // the Decision stands, and the headers are set
	oneEntry        [1]entry        // room for one policy: no allocation beside the state
	admission
	oneCharge [1]gcra.Charge
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
			return s
		}
		return nil // rule 5
	case carry.Key:
		return nil // rule 1: an outer limiter's
	}
	return s.Context.Value(key)
}

// Notice logs what a key function reports, in one line for all policies, which
// often have the same key function. A missing user or route is only recorded here;
// policy.note logs it if all of the policy's first requests lack one.
func (s *requestState) Notice(code diag.Code, text string, args ...any) {
	e := &s.entries[len(s.entries)-1]
	switch code {
	case diag.AnonymousOnly:
		e.key = noUser
	case diag.RouteUnknown:
		e.key = noRoute
	default:
		e.key = cmp.Or(e.key, explained)
		cause := "" // which of the mistakes with tokens: one must not hide another
		if code == diag.JWTRejected {
			cause = text
		}
		s.policies.limiter.log.Report(code, cause, text, append([]any{"policy", s.policies.list[e.policy].Name}, args...)...)
	}
}

// uncancelled is a requestState as a context for the store, as of context.WithoutCancel,
// without an allocation: a client must not avoid a charge by hanging up.
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

// settledIn returns the admission of the innermost requestState with a Decision, or nil.
func settledIn(ctx context.Context) *admission {
	for s := stateIn(ctx); s != nil; s = stateIn(s.Context) {
		if s.settled.Load() {
			return &s.admission
		}
	}
	return nil
}

// withState returns a copy of the request with a new requestState, in one allocation.
func withState(r *http.Request) (*http.Request, *requestState) {
	made := new(struct {
		state   requestState
		request http.Request
	})
	made.state.init(r.Context())
	made.request = *r.WithContext(&made.state)
	return &made.request, &made.state
}

func (s *requestState) init(parent context.Context) {
	s.Context = parent
	s.entries, s.charges = s.oneEntry[:0], s.oneCharge[:0]
}

// claim returns the request with a requestState that is the caller's: in the Carrier of
// its adapter, or else in a copy.
func claim(r *http.Request) (*http.Request, *requestState) {
	if c, ok := r.Context().Value(carry.Key{}).(*carry.Carrier); ok {
		s := new(requestState)
		s.init(c.Context)
		s.carried = s
		if s.outer = settledIn(s.Context); c.Claim(&s.carried) {
			return r, s
		}
	}

	// There is no Carrier, or it has the state of another limiter, which may be running.
	r, s := withState(r)
	s.outer = settledIn(s.Context)
	return r, s
}

// FromContext returns the Decision that the innermost [Limiter.Allow] or [Limiter.Admit] has
// made about the request, or nil if there is none. Handlers may call Refund, Spend and Settle
// of a nil Decision, which change nothing.
func FromContext(ctx context.Context) *Decision {
	if a := settledIn(ctx); a != nil {
		return a.decision()
	}
	return nil
}
