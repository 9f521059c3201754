package middleware

import (
	"net/http"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Decision is what a limiter decided about a request. Copies share what they
// are about: a refund through one is a refund through all.
type Decision struct {
	Allowed    bool
	RetryAfter time.Duration  // longest among the denying policies; 0 when allowed or when no wait helps
	Delay      time.Duration  // how long to hold an allowed request back: longest among the policies
	Results    []PolicyResult // of the policies that applied and were decided, in order
	Err        error          // why a policy could not be decided as asked and followed its OnFailure; nil if all were

	// Took is how long it took to decide, without any Delay. It is measured for
	// observers; without one it is 0.
	Took time.Duration

	state *requestState // nil in a Decision that no limiter made
}

// PolicyResult is what one policy said to a request.
type PolicyResult struct {
	Policy  string     // its name
	Subject string     // who was counted, as its Key said
	Shadow  bool       // it denies nobody: Allowed tells what it would have done
	Limit   gcra.Limit // the limit that applied, as it was given (a Burst of 0 means Count); during an outage this server's share
	gcra.Result
}

// Status is the status code that goes with the decision: 200 when allowed, 429
// when a policy denied, 503 when a policy could not be decided and is
// FailClosed.
func (d Decision) Status() int {
	if d.Allowed {
		return http.StatusOK
	}
	for i := range d.Results {
		if d.Results[i].denies() {
			return http.StatusTooManyRequests
		}
	}
	return http.StatusServiceUnavailable
}

// Degraded returns the names of the policies that applied, could not be decided
// as asked and followed their OnFailure, in order; nil when Err is nil.
func (d Decision) Degraded() (names []string) {
	if d.Err == nil || d.state == nil {
		return nil
	}
	for i := range d.state.entries {
		if d.state.entries[i].source != sourceStore {
			names = append(names, d.state.charges[i].Policy)
		}
	}
	return names
}

func (p *PolicyResult) denies() bool { return !p.Allowed && !p.Shadow }

// violated are the names of the policies that denied. A policy that could not be
// decided is none of them: its quota was not exceeded.
func (d *Decision) violated() (names []string) {
	for i := range d.Results {
		if d.Results[i].denies() {
			names = append(names, d.Results[i].Policy)
		}
	}
	return names
}

// conclude makes the Decision of the results: allowed is what every policy has
// admitted, except for those that let pass what they cannot decide. Its Results
// are left to conclusion.
func (v *requestState) decide() {
	d := &v.decision
	d.state = v
	d.Allowed = true
	denied, helpless := false, false
	for i := range v.charges {
		c, e := &v.charges[i], &v.entries[i]
		switch {
		case c.Shadow || e.source == sourceOpen:
		case e.status == undecided:
			d.Allowed = false
		case c.Result.Allowed:
			d.Delay = max(d.Delay, c.Result.Delay)
		default:
			d.Allowed, denied = false, true
			d.RetryAfter = max(d.RetryAfter, c.Result.RetryAfter)
			helpless = helpless || c.Result.Never
		}
	}
	switch {
	case d.Allowed:
		return
	case helpless:
		d.RetryAfter = 0
	case !denied:
		d.RetryAfter = time.Second // nobody knows how long an outage lasts
	}
	d.Delay = 0
}

// conclusion is the Decision with its Results. Most requests pass, and nobody
// looks at these.
func (v *requestState) decisionWithResults() *Decision {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.decision.Results == nil && len(v.charges) > 0 {
		results := make([]PolicyResult, 0, len(v.charges))
		for i := range v.charges {
			if c := &v.charges[i]; v.entries[i].status != undecided {
				results = append(results, PolicyResult{c.Policy, c.Subject, c.Shadow, c.Limit, c.Result})
			}
		}
		v.decision.Results = results
	}
	return &v.decision
}
