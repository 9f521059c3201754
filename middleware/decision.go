package middleware

import (
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Decision is what a [Limiter] decided about a request. Observers, Deny and handlers may
// share it: do not change it.
type Decision struct {
	Allowed    bool
	RetryAfter time.Duration  // as in the header, in whole seconds: longest of the policies that denied, at most 2,147,483 s, or 1 s of a 503; 0 if allowed or if no wait helps
	Delay      time.Duration  // how long to hold an allowed request back: longest of the policies that are not shadows
	Results    []PolicyResult // of the policies that applied and were decided, in order
	Err        error          // why a policy followed its OnFailure or a refund failed, or why a delay ended early; otherwise nil

	// Took is the time that the decision took, without Delay. It is 0 if the limiter has no
	// observer, and in a Decision of Peek.
	Took time.Duration

	admission *admission // nil in a Decision that no limiter made
}

// PolicyResult is the part of one policy in a [Decision].
type PolicyResult struct {
	Policy      string     // name of the policy
	Subject     string     // key of the request, as the policy's Key returned it
	Shadow      bool       // the policy never denies: Allowed says what it would have done
	Banned      bool       // an Override bans the subject: for RetryAfter, or for good if Never is set
	Limit       gcra.Limit // limit that applied, as configured (a Burst of 0 means Count); with FailLocal, Remaining is what this server's share of it has left
	gcra.Result            // its RetryAfter is not rounded; Decision.RetryAfter is rounded up
}

// Status is the status code for the decision: 200 if allowed, Config.BanStatus if an
// Override bans the client, 429 if a policy denied, otherwise 503: a policy could not be
// decided and its OnFailure denies, or the request's context ended while it was held back.
func (d *Decision) Status() int {
	switch {
	case d.Allowed:
		return http.StatusOK
	case d.admission != nil && d.admission.stops(sourceBan):
		return d.admission.policies.limiter.cfg.BanStatus
	case slices.ContainsFunc(d.Results, PolicyResult.denies):
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// Degraded returns the names of the policies that followed their OnFailure, in
// order; nil if Err is nil.
func (d *Decision) Degraded() (names []string) {
	if d.Err == nil || d.admission == nil {
		return nil
	}
	for i := range d.admission.entries { // no copy: a refund may write to it
		if from := d.admission.entries[i].source; from != sourceStore && from != sourceBan {
			names = append(names, d.admission.charges[i].Policy)
		}
	}
	return names
}

func (p PolicyResult) denies() bool { return !p.Allowed && !p.Shadow }

// banned says in a sentence until when the client is banned, or returns "" if it is not.
func (d *Decision) banned() string {
	longest, never := time.Duration(0), false
	for i := range d.Results {
		if p := &d.Results[i]; p.Banned && !p.Shadow {
			longest, never = max(longest, p.RetryAfter), never || p.Never
		}
	}

	const text = "The request was denied because its client is banned"
	switch {
	case never, longest == math.MaxInt64: // more than a Duration holds
		return text + "."
	case longest == 0:
		return ""
	}
	return text + " until " + time.Now().Add(longest).Round(time.Second).UTC().Format(time.RFC3339) + "."
}

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

// denies reports whether the charge at index i denies the request. One that was not decided,
// as another denies, does not.
func (a *admission) denies(i int) bool {
	e, c := &a.entries[i], &a.charges[i]
	return !c.Shadow && (e.source == sourceClosed || e.status != undecided && !c.Result.Allowed)
}

// allowed reports whether the request is allowed: no charge denies it.
func (a *admission) allowed() bool {
	for i := range a.charges {
		if a.denies(i) {
			return false
		}
	}
	return true
}

// delay is how long to hold an allowed request back.
func (a *admission) delay() (longest time.Duration) {
	for i := range a.charges {
		if c := &a.charges[i]; !c.Shadow && a.entries[i].status != undecided {
			longest = max(longest, c.Result.Delay)
		}
	}
	return longest
}

// retryAfter is Retry-After, in whole seconds: 0 if the request is allowed or if no wait helps.
func (a *admission) retryAfter() time.Duration {
	if a.allowed() {
		return 0
	}
	// Each policy that denied must let the next try pass, so the longest wait counts.
	longest := time.Duration(1) // how long a failure lasts is unknown
	for i := range a.charges {
		r := &a.charges[i].Result
		switch {
		case !a.denies(i) || a.entries[i].source == sourceClosed:
		case r.Never:
			return 0
		default:
			longest = max(longest, r.RetryAfter)
		}
	}
	return time.Duration(told(longest)) * time.Second
}

// decision returns the Decision, which the first call makes. Most requests never
// need it.
func (a *admission) decision() *Decision {
	if d := a.made.Load(); d != nil { // without the lock, which a Settle holds while it asks the store
		return d
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	if d := a.made.Load(); d != nil {
		return d
	}

	room := new(struct { // one allocation for up to two policies
		Decision
		results [2]PolicyResult
	})
	d := &room.Decision
	*d = Decision{Allowed: a.allowed(), Err: a.err, admission: a}
	if d.Allowed {
		d.Delay = a.delay()
	} else {
		d.RetryAfter = a.retryAfter()
	}

	if len(a.charges) > 0 {
		d.Results = room.results[:0]
	}
	for i := range a.charges {
		if c := &a.charges[i]; a.entries[i].status != undecided {
			d.Results = append(d.Results, PolicyResult{c.Policy, c.Subject, c.Shadow, a.entries[i].source == sourceBan, c.Limit, c.Result})
		}
	}
	a.made.Store(d)
	return d
}
