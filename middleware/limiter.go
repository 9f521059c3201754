package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/await"
	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// observer is a function given to Observe.
type observer = func(*http.Request, *Decision)

// Limiter decides about requests by its policies. [New] builds one. All methods
// are safe for concurrent use, including Reload and Observe, which change it.
type Limiter struct {
	cfg       Config // with Headers and BanStatus set
	policies  atomic.Pointer[policies]
	local     gcra.Store                 // for FailLocal
	observers atomic.Pointer[[]observer] // never nil
	log       diag.Log
}

// Decide charges the policies that apply to the request and returns the Decision. It
// touches no response, and leaves a Delay to the caller. It goes on if the client hangs
// up.
func (l *Limiter) Decide(r *http.Request) *Decision {
	r, s := withState(r)
	l.run(r, s)
	return s.decision()
}

// Allow decides as Decide does and answers the client: it sets the RateLimit fields,
// writes the denial, and holds an allowed request back while a policy with MaxDelay asks
// for it. It reports whether the request may go on; if not, write nothing.
//
// Before a denial it reads the request's body, up to 64 MiB in 5 s, or a proxy in front that is
// still sending would answer 502. HTTP/2, a request with Expect, and a ResponseWriter that can set
// no read deadline are excepted.
//
// Pass the returned request on: it carries the Decision, see [FromContext].
func (l *Limiter) Allow(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
	r, denied := l.Admit(w.Header(), r)
	if denied != nil {
		l.writeDenial(w, r, denied)
	}
	return r, denied == nil
}

// Admit is [Limiter.Allow] for servers of other protocols than HTTP: it writes no response
// and does not call Config.Deny. It sets the RateLimit fields in h and, on a denial,
// Retry-After unless no wait helps.
//
// denied is nil if the request may go on. Otherwise the server answers by its Status,
// RetryAfter and Results. One with a Delay is of a request whose context ended while it
// was held back; Err is then the error of the context.
//
// Pass the returned request's context on: it carries the Decision, see [FromContext].
func (l *Limiter) Admit(h http.Header, r *http.Request) (_ *http.Request, denied *Decision) {
	r, s := claim(r)
	allowed, delay := l.run(r, s)

	s.mu.Lock() // an observer may have started a Spend or Refund
	writeHeaders(&s.admission, h, l.cfg.Headers)
	s.mu.Unlock()

	// From here on inner limiters and FromContext see it.
	s.settled.Store(true)

	// A request whose context ends while it waits stays charged, and gets an answer: most clients have gone
	// by then, but if the server ended the context, returning in silence would mean 200.
	switch {
	case !allowed:
		denied = s.decision()
	case await.Sleep(r.Context(), delay) != nil:
		d := s.decision()
		denied = &Decision{RetryAfter: time.Second, Delay: delay, Results: d.Results, Err: r.Context().Err(), Took: d.Took, admission: &s.admission}
	}

	if denied != nil && denied.RetryAfter > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(seconds(denied.RetryAfter), 10)}
	}
	return r, denied
}

// Peek returns what the policies that apply to the request have left. It charges none of
// them, so a program can show its customers their use:
//
//	for _, p := range limiter.Peek(r).Results {
//		used := p.Limit.Capacity() - p.Remaining // ResetAfter says when nothing is used
//	}
//
// Policies apply as in Decide: a policy with Routes only if r has such a route. Shadow
// policies are among the Results, with Shadow set. Keys of an adapter's KeyFrom need the
// framework's context: outside the limiter pass WithFramework(c.Request, c.Request.Pattern, c)
// of package adapter with gin's c, and with echo's likewise c.Request(). Peek calls no Cost and no observer,
// so metrics of decisions leave it out. Limit a route that calls it by a policy of its
// own: Peek may ask the store each time.
//
// Remaining is 0 while there is a debt. The ResetAfter of a rate includes the debt, and
// the requests that MaxDelay holds back. Allowed is true also if nothing is left. It is
// false if a ban or a policy that fails closed denies; then Results may lack other
// policies. A policy that fails local shows what this server's share has left, and one
// that fails open is not among the Results. Refund, Settle and Spend of the Decision
// change no bucket.
func (l *Limiter) Peek(r *http.Request) *Decision {
	r, s := withState(r)
	l.evaluate(r, &s.admission, true)
	// A client that hangs up must not make the store fail.
	l.take((*uncancelled)(s), &s.admission)
	for i := range s.entries {
		s.entries[i].status = min(s.entries[i].status, decided) // nothing was charged
	}
	return s.decision()
}

// run takes a request through the limiter up to its Decision, and tells the observers, which
// may keep it.
func (l *Limiter) run(r *http.Request, s *requestState) (allowed bool, delay time.Duration) {
	observers := *l.observers.Load()
	// Nobody else reads Took.
	var start time.Time
	if len(observers) > 0 {
		start = time.Now()
	}

	l.evaluate(r, &s.admission, false)
	l.reportTwice(&s.admission)

	// Once it is charged, a client that hangs up must not undo it.
	if len(s.charges) > 0 {
		acceptDelays(r.Context(), s.charges)
		l.take((*uncancelled)(s), &s.admission)
	}
	for i := range s.charges {
		if c := &s.charges[i]; c.Result.Never && s.entries[i].status != undecided && s.entries[i].source != sourceBan {
			l.tooExpensive(c)
		}
	}
	l.logDecision(r.Context(), &s.admission)

	// From here on observers may settle or refund, so what was decided is read first.
	allowed, delay = s.allowed(), s.delay()
	if len(observers) > 0 {
		s.decision().Took = time.Since(start)
	}
	for _, observe := range observers {
		observe(r, s.decision())
	}
	return allowed, delay
}

// acceptDelays lets the charges wait as long as their limits allow, but only until the
// deadline of the request: it is better denied at once, and charged nothing, than held back
// until nobody waits for it.
func acceptDelays(ctx context.Context, charges []gcra.Charge) {
	longest := gcra.MaxDelay
	if deadline, ok := ctx.Deadline(); ok {
		longest = max(time.Until(deadline), 0)
	}
	for i := range charges {
		charges[i].MaxWait = min(charges[i].MaxDelay, longest)
	}
}

// evaluate makes a charge for each of the policies that applies. If it peeks, it calls no Cost
// and does not count the request among a policy's first.
func (l *Limiter) evaluate(r *http.Request, a *admission, peeks bool) {
	ps := l.policies.Load()
	a.policies = ps
	a.makeRoom(len(ps.list))
	matches := ps.routes.Match(r)
	for i, p := range ps.list {
		if !matches.Applies(i) {
			continue
		}

		// An entry without a charge marks that key functions run (rule 1 of admission), and gets their reports.
		n := len(a.charges)
		a.entries = append(a.entries, entry{policy: uint8(i)})
		e, c := &a.entries[n], &a.charges[:n+1][n]
		applies, function, err := p.evaluate(r, e, c, peeks)
		if !applies {
			a.entries = a.entries[:n]
			continue
		}

		a.charges = a.charges[:n+1]
		c.Peek = c.Peek || peeks
		if err != nil {
			a.err = errors.Join(a.err, fmt.Errorf("ratelimit: policy %s: %w", p.Name, err))
			a.fail(n)
			l.policyFailed(r, p.Name, function, err, e.source)
		}
	}
}
