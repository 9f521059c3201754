package middleware

import (
	"context"
	"net/http"
)

// Peek returns what the policies that apply to the request have left. It charges
// none of them and writes nothing to the store, so a program can show its
// customers their use:
//
//	for _, p := range limiter.Peek(r).Results {
//		used := p.Limit.Capacity() - p.Remaining // ResetAfter says when nothing is used
//	}
//
// Policies apply as in Decide, by Skip, LimitFor, Key and Routes: those with Routes
// only if r has such a route. Shadow policies are among the Results, with Shadow set.
// Keys of an adapter's KeyFrom need the framework's context: outside the limiter
// pass WithRoute(c.Request, c.Request.Pattern, c) of gin's c, or of echo's. Peek calls no Cost and no
// observer, so metrics and the inspector do not see it. It is one call of the store,
// from which no cache of denials saves it: limit a route that calls it by a policy of
// its own.
//
// Remaining is 0 while there is a debt. The ResetAfter of a rate includes the debt.
// Allowed is true, also if nothing is left, unless the key is banned, and Delay is 0: ResetAfter includes the
// requests that MaxDelay holds back. While the store fails, Err is set. A policy
// that fails local then shows this server's state, of its share of a rate. One that
// fails open is not among the Results. If one fails closed, Allowed is false, Status
// is 503, and Results may lack other policies; so they may if one bans the key, with
// status 429. Refund, Settle and Spend of the Decision
// do nothing.
func (l *Limiter) Peek(r *http.Request) *Decision {
	a := new(admission)
	l.evaluate(r, a, true)
	for i := range a.charges {
		a.charges[i].Peek = true
	}
	l.take(context.WithoutCancel(r.Context()), r, a)
	for i := range a.entries {
		a.entries[i].status = min(a.entries[i].status, decided) // nothing was charged
	}
	return a.decision()
}
