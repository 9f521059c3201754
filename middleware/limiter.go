package middleware

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Limiter decides about requests by its policies. It is built by [New] and is
// safe for concurrent use; so are Reload and Observe, which change it.
type Limiter struct {
	policies  atomic.Pointer[policies]
	store     gcra.Store
	local     gcra.Store // for OutageLocal
	instances int
	headers   Headers
	deny      func(http.ResponseWriter, *http.Request, Decision)
	observers observers
}

// Decide charges the policies that apply to the request and says whether it
// may go on. It writes nothing and does not wait: honouring Delay is the
// caller's part. A client that hangs up meanwhile is charged all the same.
func (l *Limiter) Decide(r *http.Request) Decision {
	v := &visit{Context: r.Context()}
	l.decide(r, v)
	return *v.conclusion()
}

// Allow decides about the request as Decide does and tells the client: it sets
// the RateLimit fields, writes the refusal, and holds an allowed request back
// for as long as a policy with MaxDelay asks. It reports whether the request
// may go on; if not, the response is written.
//
// The request that it returns is the one to hand on, for it carries the
// Decision (see [FromContext]).
func (l *Limiter) Allow(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
	r, v := visitOf(r)
	l.decide(r, v)
	d := &v.decision
	v.mu.Lock() // an observer may have begun a Refund
	v.tell(w.Header(), l.headers)
	v.mu.Unlock()
	v.stage.CompareAndSwap(claimed, settled) // unless an observer has refunded it already
	if !d.Allowed {
		l.refuse(w, r, v.conclusion())
		return r, false
	}
	if d.Delay > 0 && !pause(r.Context(), d.Delay) {
		// Most likely nobody is left to read this, but where the server ended the
		// context, returning in silence would say 200.
		l.refuse(w, r, &Decision{RetryAfter: time.Second, Delay: d.Delay, Results: v.conclusion().Results, Err: r.Context().Err()})
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

func (l *Limiter) decide(r *http.Request, v *visit) {
	observers := l.observers.load()
	var start time.Time
	if observers != nil {
		start = time.Now()
	}
	l.collect(r, v)
	if len(v.charges) > 0 {
		l.take((*detached)(v), v)
	}
	v.conclude()
	if observers != nil {
		v.decision.Took = time.Since(start)
		for _, observe := range observers {
			observe(r, *v.conclusion())
		}
	}
}

// collect makes a charge for each policy that applies.
func (l *Limiter) collect(r *http.Request, v *visit) {
	ps := l.policies.Load()
	v.policies = ps
	v.makeRoom(len(ps.list))
	verdicts := ps.verdicts(r)
	for i, p := range ps.list {
		if verdicts != nil && !verdicts[i].of(r) {
			continue
		}
		v.charges = append(v.charges, gcra.Charge{})
		v.entries = append(v.entries, entry{policy: uint16(i)})
		applies, err := p.ask(r, &v.charges[len(v.charges)-1])
		if !applies {
			v.charges = v.charges[:len(v.charges)-1]
			v.entries = v.entries[:len(v.entries)-1]
		} else if err != nil {
			v.fallBack(len(v.entries)-1, err)
		}
	}
}
