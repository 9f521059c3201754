package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/pattern"
)

// policy is a compiled Policy.
type policy struct {
	Policy
	limiter *Limiter
	routes  []*pattern.Pattern
	text    policyText
	first   atomic.Pointer[firstRequests] // nil when they have passed
}

// verdict is what a policy's functions say about a request.
type verdict uint8

const (
	exempt    verdict = iota // the policy does not apply
	anonymous                // nor does it here, by SkipAnonymous
	charges                  // the charge is for a store, or for OnFailure after an error
	banned                   // the charge's Result says so, and no store is asked
)

// evaluate fills the charge, which must be zero before, if the policy applies to the
// request. After an error the charge is for FailLocal: anonymous without a key, of the
// whole burst without a cost. Its limit is zero if it is unknown.
//
// A panic in one of the application's functions is an error like any other, so
// that no request can escape the other policies by causing it.
func (p *policy) evaluate(r *http.Request, c *gcra.Charge) (v verdict, failed *policyError) {
	function := ""
	defer func() {
		if v := recover(); v != nil {
			failed = &policyError{p.Name, function, recovered(v)}
		}
		if failed != nil {
			v = charges
		}
		if failed != nil && c.Limit == gcra.Unlimited() { // without what failed
			c.Limit = gcra.Limit{}
		}
	}()
	fails := func(err error) (verdict, *policyError) { return charges, &policyError{p.Name, function, err} }

	*c = p.Charge("", p.Limit)
	if p.Skip != nil {
		function = "Skip"
		if p.Skip(r) {
			return exempt, nil
		}
	}

	function = "Key"
	subject := ""
	keyErr := safely(func() (err error) { subject, err = p.Key(r); return err })
	if keyErr == nil && subject == "" && p.SkipAnonymous {
		return anonymous, nil
	}

	if keyErr == nil {
		c.Subject = subject
	}

	// Also without a key, which FailLocal counts under this limit.
	var planErr error // what an Override says of the key counts all the same
	if p.LimitFor != nil {
		function = "LimitFor"
		planErr = safely(func() error { return p.setLimit(c, p.LimitFor(r), "the request") })
		if planErr != nil && keyErr != nil {
			return fails(planErr)
		}
	}
	if keyErr != nil && c.Limit == gcra.Unlimited() {
		return exempt, nil
	}
	if keyErr != nil {
		function = "Key"
		return fails(keyErr)
	}

	if p.Override != nil || p.override != nil {
		function = "Override"
		o, overridden := p.OverrideOf(subject)
		switch {
		case overridden && o.Banned:
			c.Result.Never = o.Until.IsZero()
			if !c.Result.Never {
				c.Result.RetryAfter = max(time.Until(o.Until), 1)
			}
			c.Result.ResetAfter = c.Result.RetryAfter
			if c.Limit == gcra.Unlimited() {
				c.Limit = gcra.Limit{}
			}
			return banned, nil
		case overridden:
			if err := p.setLimit(c, o.Limit, "the key"); err != nil {
				return fails(err)
			}
			if o.Limit != (gcra.Limit{}) {
				planErr = nil // Override wins
			}
		}
	}
	if planErr != nil {
		function = "LimitFor"
		return fails(planErr)
	}
	if c.Limit == gcra.Unlimited() {
		return exempt, nil
	}

	if p.Cost != nil {
		function = "Cost"
		c.Cost = c.Limit.Capacity() // stays if Cost fails, as a client may have caused that
		cost := p.Cost(r)
		if cost < 0 {
			return fails(fmt.Errorf("cost of the request is %d; want 0 or more", cost))
		}
		c.Cost, c.Peek = cost, cost == 0
	}
	return charges, nil
}

// errNoLimit is the error of a plan that is missing.
var errNoLimit = errors.New("the limit is missing, and so is Policy.Limit; want a limit for each plan, or gcra.Unlimited")

// setLimit sets the charge's limit to one that LimitFor or Override returned. In place of
// a zero one it keeps the limit that the charge has. In errors what has the limit.
func (p *policy) setLimit(c *gcra.Charge, limit gcra.Limit, what string) error {
	switch limit {
	case gcra.Limit{}:
		if c.Limit == (gcra.Limit{}) {
			return errNoLimit
		}
		p.limiter.log.Report(diag.LimitUnset, p.Name, "LimitFor or Override returned no limit, so the one without it applies: want a limit for each plan, or gcra.Unlimited", "policy", p.Name)
		return nil
	case gcra.Unlimited():
	default:
		if err := p.checkOwn(p.limiter.store, limit); err != nil {
			return fmt.Errorf("limit for %s is %v: %w", what, limit, err)
		}
	}
	*c = p.Charge(c.Subject, limit)
	return nil
}

// policyError is the error of a policy that could not be evaluated.
type policyError struct {
	policy   string
	function string // field of the Policy that failed: "Key"
	cause    error
}

func (e *policyError) Error() string { return "ratelimit: policy " + e.policy + ": " + e.cause.Error() }
func (e *policyError) Unwrap() error { return e.cause }
