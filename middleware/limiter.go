package middleware

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// Limiter decides about requests by its policies. It is built by [New] and is
// safe for concurrent use; so are Reload and Observe, which change it.
type Limiter struct {
	policies  atomic.Pointer[policies]
	store     gcra.Store
	local     gcra.Store // for FailLocal
	instances int
	headers   Headers
	deny      func(http.ResponseWriter, *http.Request, Decision) // nil for the default
	observers observers
	shared    []string // names of policies that other limiters have too; guarded by limiters
	log       diag.Log
}

// Decide charges the policies that apply to the request and says whether it
// may go on. It writes nothing and does not wait: honouring Delay is the
// caller's part. A client that hangs up meanwhile is charged all the same.
func (l *Limiter) Decide(r *http.Request) Decision {
	var v *requestState
	asked := r
	if l.listens() {
		asked, v = withState(r, Framework(r.Context()))
	} else {
		v = &requestState{Context: r.Context()}
	}
	l.run(asked, v, nil)
	return *v.decisionWithResults()
}

// listens reports whether key functions can report problems of this Decide, which
// takes a copy of the request: while a policy counts its first requests, and now
// and then later.
func (l *Limiter) listens() bool {
	for _, p := range l.policies.Load().list {
		if p.first.Load() != nil {
			return true
		}
	}
	return rand.Uint32()%64 == 0 // a sample
}

// Allow decides about the request as Decide does and tells the client: it sets
// the RateLimit fields, writes the denial, and holds an allowed request back
// for as long as a policy with MaxDelay asks. It reports whether the request
// may go on; if not, the response is written.
//
// The request that it returns is the one to hand on, for it carries the
// Decision (see [FromContext]).
func (l *Limiter) Allow(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
	r, v, outer := claim(r)
	l.run(r, v, outer)
	d := &v.decision
	v.mu.Lock() // an observer may have begun a Refund
	v.writeHeaders(w.Header(), l.headers)
	v.mu.Unlock()
	v.phase.CompareAndSwap(claimed, settled) // unless an observer has refunded it already
	if !d.Allowed {
		l.writeDenial(w, r, v.decisionWithResults())
		return r, false
	}
	if d.Delay > 0 && !pause(r.Context(), d.Delay) {
		// Most likely nobody is left to read this, but where the server ended the
		// context, returning in silence would say 200.
		l.writeDenial(w, r, &Decision{RetryAfter: time.Second, Delay: d.Delay, Results: v.decisionWithResults().Results, Err: r.Context().Err()})
		return r, false
	}
	return r, true
}

// pause waits, and reports false if the context ends first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// decide decides about a request that has passed the limiter of the outer
// visit, if that is not nil.
func (l *Limiter) run(r *http.Request, v, outer *requestState) {
	observers := l.observers.load()
	var start time.Time
	if observers != nil {
		start = time.Now()
	}
	l.collect(r, v)
	if outer != nil {
		v.checkTwice(outer)
	}
	if len(v.charges) > 0 {
		l.take((*undying)(v), v)
	}
	v.decide()
	if observers != nil {
		v.decision.Took = time.Since(start)
		for _, observe := range observers {
			observe(r, *v.decisionWithResults())
		}
	}
}

// collect makes a charge for each policy that applies.
func (l *Limiter) collect(r *http.Request, v *requestState) {
	ps := l.policies.Load()
	v.policies = ps
	v.makeRoom(len(ps.list))
	verdicts := ps.match(r)
	for i, p := range ps.list {
		if verdicts != nil && !verdicts[i].matches(r) {
			continue
		}
		v.charges = append(v.charges, gcra.Charge{})
		v.entries = append(v.entries, entry{policy: uint8(i)})
		n := len(v.charges) - 1
		applies, failed := p.evaluate(r, &v.charges[n])
		switch {
		case !applies:
			v.charges = v.charges[:n]
			v.entries = v.entries[:n]
		case failed != nil:
			v.fallBack(n, failed)
			l.policyFailed(r, failed, v.entries[n].source)
		case p.first.Load() != nil:
			p.noteKey(v.charges[n].Subject, v.entries[n].key)
		}
	}
}
