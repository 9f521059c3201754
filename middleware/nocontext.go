package middleware

import (
	"context"
	"net/http"
	"sync"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// borrowable are requestStates of requests that are done, for [Config.NoContext].
var borrowable = sync.Pool{New: func() any { return new(requestState) }}

// borrow returns a requestState that nothing refers to but the goroutine of Allow:
// no request, context or response. So it can serve another request as soon as
// Allow returns, before the handler runs. No other limiter sees it, so it needs no
// phase.
func borrow(r *http.Request) *requestState {
	s := borrowable.Get().(*requestState)
	s.Context, s.borrowed = r.Context(), true
	return s
}

// giveBack ends the use of a borrowed state, unless something may still refer to it:
// observers and Deny may keep the Decision for a later Refund, and a store that failed
// may keep the charges.
func (l *Limiter) giveBack(s *requestState) {
	if s.err != nil || len(*l.observers.Load()) > 0 || !s.allowed && l.deny != nil {
		return
	}
	entries, charges := s.entries[:0], s.charges[:0]
	if cap(s.charges) > len(s.oneCharge) { // they are not in the state
		clear(s.charges)
	}
	*s = requestState{}
	s.entries, s.charges = entries, charges
	borrowable.Put(s)
}

// withheld reports whether handlers must not see the Decision, although this
// request has been copied: they do not see that of others.
func (s *requestState) withheld() bool { return s.policies.limiter.noContext }

// checkWithheld logs if FromContext found nothing because the Decision is withheld.
// It sees the requests that are copied all the same, among them the first.
func checkWithheld(ctx context.Context) {
	if s := stateIn(ctx); s != nil && s.phase.Load() >= settled {
		s.policies.limiter.log.Report(diag.DecisionWithheld, "FromContext",
			"a handler asks for the Decision of a limiter with Config.NoContext and gets nil, so Refund, Spend and Settle do nothing: leave NoContext out")
	}
}

// checkOuterWithheld logs if this limiter replaces the fields of a limiter further
// out that it does not know of.
func (l *Limiter) checkOuterWithheld(outer *requestState) {
	if l.headers != HeadersNone && outer.phase.Load() >= settled && outer.withheld() && outer.written.headers != 0 {
		l.log.Report(diag.DecisionWithheld, "headers",
			"a limiter replaces the RateLimit fields of one further out, which has Config.NoContext: leave NoContext out")
	}
}
