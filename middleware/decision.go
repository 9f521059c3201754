package middleware

import (
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Decision is what a [Limiter] decided about a request. Observers, Deny and handlers
// of a request get the same one: do not change it. Only Deny and the caller of Admit get
// another, with Err, if the request's context ended while it was held back.
type Decision struct {
	Allowed    bool
	RetryAfter time.Duration  // as in the header, in whole seconds: longest of the policies that denied; 0 if allowed or if no wait helps
	Delay      time.Duration  // how long to hold an allowed request back: longest of the policies
	Results    []PolicyResult // of the policies that applied and were decided, in order
	Err        error          // why a policy followed its OnFailure; nil if none did

	// Took is the time that the decision took, without Delay. It is measured only
	// if the limiter has an observer, and 0 otherwise.
	Took time.Duration

	state *requestState // nil in a Decision that no limiter made
}

// PolicyResult is the part of one policy in a [Decision].
type PolicyResult struct {
	Policy      string     // name of the policy
	Subject     string     // key of the request, as the policy's Key returned it
	Shadow      bool       // the policy never denies: Allowed says what it would have done
	Limit       gcra.Limit // limit that applied, as configured (a Burst of 0 means Count); with FailLocal, Remaining is what this server's share of it has left
	gcra.Result            // its RetryAfter is exact, that of the Decision is rounded up
}

// Status is the status code for the decision: 200 if allowed, Config.BanStatus if an
// Override bans the client, 429 if a policy denied, 503 if a policy with FailClosed could
// not be decided.
func (d *Decision) Status() int {
	switch {
	case d.Allowed:
		return http.StatusOK
	case d.state != nil && isBanned(d.state):
		return d.state.policies.limiter.banStatus
	case slices.ContainsFunc(d.Results, PolicyResult.denies):
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// Degraded returns the names of the policies that followed their OnFailure, in
// order; nil if Err is nil.
func (d *Decision) Degraded() (names []string) {
	if d.Err == nil || d.state == nil {
		return nil
	}
	for i := range d.state.entries {
		if from := d.state.entries[i].source; from != sourceStore && from != sourceBan {
			names = append(names, d.state.charges[i].Policy)
		}
	}
	return names
}

func (p PolicyResult) denies() bool { return !p.Allowed && !p.Shadow }

// violated returns the names of the policies that denied. A policy that could
// not be decided is not among them: its quota was not exceeded.
func (d *Decision) violated() (names []string) {
	for i := range d.Results {
		if d.Results[i].denies() {
			names = append(names, d.Results[i].Policy)
		}
	}
	return names
}

// decide decides about the request: it is allowed if each policy allowed it, is a
// shadow, or failed open.
func decide(s *requestState) {
	s.decided, s.allowed = true, true
	var delay, retryAfter time.Duration
	denied, never := false, false
	for i := range s.charges {
		c, e := &s.charges[i], &s.entries[i]
		switch {
		case c.Shadow || e.source == sourceOpen:
		case e.status == undecided:
			s.allowed = false
		case c.Result.Allowed:
			delay = max(delay, c.Result.Delay)
		default:
			s.allowed, denied = false, true
			retryAfter = max(retryAfter, c.Result.RetryAfter)
			never = never || c.Result.Never
		}
	}
	switch {
	case s.allowed:
		s.delay = delay
	case never:
	case denied:
		s.retryAfter = int32(min(seconds(retryAfter), math.MaxInt32)) // a ban may be long
	default:
		s.retryAfter = 1 // how long a failure lasts is unknown
	}
}

// decisionOf returns the Decision, which the first call makes. Most requests never
// need it.
func decisionOf(s *requestState) *Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.decision == nil {
		s.decision = newDecision(s)
	}
	return s.decision
}

func newDecision(s *requestState) *Decision {
	made := new(struct { // one allocation for up to two policies
		Decision
		results [2]PolicyResult
	})
	d := &made.Decision
	*d = Decision{Allowed: s.allowed, RetryAfter: time.Duration(s.retryAfter) * time.Second, Delay: s.delay, Took: s.took, Err: s.err, state: s}
	if len(s.charges) > 0 {
		d.Results = made.results[:0]
	}

	for i := range s.charges {
		if c := &s.charges[i]; s.entries[i].status != undecided {
			d.Results = append(d.Results, PolicyResult{c.Policy, c.Subject, c.Shadow, c.Limit, c.Result})
		}
	}
	return d
}
