package middleware

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// observer is a function given to Observe.
type observer = func(*http.Request, *Decision)

// Limiter decides about requests by its policies. [New] builds one. All methods
// are safe for concurrent use, including Reload and Observe, which change it.
type Limiter struct {
	policies  atomic.Pointer[policies]
	store     gcra.Store
	local     gcra.Store // for FailLocal
	headers   Headers
	deny      func(http.ResponseWriter, *http.Request, *Decision) // nil for the default
	observers atomic.Pointer[[]observer]                          // never nil
	shared    []string                                            // names of policies that other limiters have too; guarded by limiters
	log       diag.Log
	rpc       bool                                          // Config.RPC
	override  func(policy, subject string) (Override, bool) // Config.Override
	banStatus int
	calls     sync.Once // of the first Admit, see checkCalls
}

// Decide charges the policies that apply to the request and returns the
// Decision. It writes nothing and does not wait; a Delay is for the caller to
// honour. If the client hangs up meanwhile, the request is charged all the same.
func (l *Limiter) Decide(r *http.Request) *Decision {
	r, s := withState(r, Framework(r.Context()))
	for _, observe := range l.run(r, s, nil) {
		observe(r, decisionOf(s))
	}
	return decisionOf(s)
}

// Allow decides about the request as Decide does and answers the client: it
// sets the RateLimit fields, writes the denial, and holds an allowed request
// back while a policy with MaxDelay asks for it. It reports whether the request
// may go on; if not, the response is written.
//
// Pass the returned request on: it carries the Decision, see [FromContext].
func (l *Limiter) Allow(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
	r, denied := l.admit(w.Header(), r)
	if denied != nil {
		l.writeDenial(w, r, denied)
	}
	return r, denied == nil
}

// Admit is [Limiter.Allow] for servers of other protocols than HTTP: it writes no
// response and does not call Config.Deny. Its first call logs the policies that limit
// no remote procedure call, unless the limiter has Config.RPC. It sets the RateLimit fields in h and, on a
// denial, Retry-After. It holds an allowed request back while a policy with MaxDelay
// asks for it.
//
// denied is nil if the request may go on. Otherwise the server answers by its Status,
// RetryAfter and Results. One with a Delay is of a request whose context ended while it
// was held back; Err is then the error of the context.
//
// Pass the returned request's context on: it carries the Decision, see [FromContext].
func (l *Limiter) Admit(h http.Header, r *http.Request) (_ *http.Request, denied *Decision) {
	if !l.rpc {
		l.calls.Do(l.checkCalls)
	}
	return l.admit(h, r)
}

func (l *Limiter) admit(h http.Header, r *http.Request) (_ *http.Request, denied *Decision) {
	r, s, outer := claim(r)
	for _, observe := range l.run(r, s, outer) {
		s.observed = true
		observe(r, decisionOf(s))
	}

	if !s.observed { // nothing else has the state
		writeHeaders(s, outer, h, l.headers)
	} else { // an observer may have started a Spend or Refund
		s.mu.Lock()
		writeHeaders(s, outer, h, l.headers)
		s.mu.Unlock()
	}
	s.phase.CompareAndSwap(claimed, settled) // unless an observer has refunded it

	if denied = hold(r, s); denied != nil && denied.RetryAfter > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(seconds(denied.RetryAfter), 10)}
	}
	return r, denied
}

// hold holds an allowed request back for its Delay. It returns the Decision of a
// request that may not go on, or nil.
func hold(r *http.Request, s *requestState) (denied *Decision) {
	if !s.allowed {
		return decisionOf(s)
	}
	if s.delay == 0 {
		return nil
	}
	select {
	case <-time.After(s.delay):
		return nil
	case <-r.Context().Done():
		// Most clients have gone by now. But if the server ended the context,
		// returning in silence would mean 200.
		return &Decision{RetryAfter: time.Second, Delay: s.delay, Results: decisionOf(s).Results, Err: r.Context().Err(), state: s}
	}
}

// run takes a request through the limiter up to its Decision. outer is the state
// of the next limiter further out, or nil. The caller tells the observers.
func (l *Limiter) run(r *http.Request, s, outer *requestState) (observers []observer) {
	observers = *l.observers.Load()
	var start time.Time
	if len(observers) > 0 {
		start = time.Now()
	}
	l.evaluate(r, s, l.policies.Load())
	if outer != nil {
		l.checkTwice(s, outer)
	}
	if len(s.charges) > 0 {
		acceptDelays(r.Context(), s.charges)
		l.take(s.uncancelled(), s)
	}
	decide(s)
	l.checkCosts(s)
	if len(observers) > 0 {
		s.took = time.Since(start)
	}
	l.logDecision(r.Context(), s)
	return observers
}

// evaluate makes a charge for each of the policies that applies.
func (l *Limiter) evaluate(r *http.Request, s *requestState, ps *policies) {
	s.policies = ps
	s.makeRoom(len(ps.list))
	matches := ps.match(r)
	for i, p := range ps.list {
		if matches != nil && !matches[i].applies(r) {
			continue
		}
		n := len(s.charges)
		s.charges = s.charges[:n+1]
		s.entries = append(s.entries, entry{policy: uint8(i)})
		verdict, failed := p.evaluate(r, &s.charges[n])
		switch {
		case verdict == banned:
			s.entries[n].source, s.entries[n].status = sourceBan, decided
		case verdict == exempt, verdict == anonymous:
			if why := s.entries[n].key; verdict == anonymous && why != explained {
				p.note("", max(why, noUser)) // or nobody would hear of a limiter in front of the authentication
			}
			s.charges[n] = gcra.Charge{}
			s.charges = s.charges[:n]
			s.entries = s.entries[:n]
		case failed != nil:
			followOnFailure(s, n, failed)
			l.policyFailed(r, failed, s.entries[n].source)
		default:
			p.note(s.charges[n].Subject, s.entries[n].key)
		}
	}
}
