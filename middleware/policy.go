package middleware

import (
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/gcra"
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

// evaluate reports whether the policy applies to the request. If so, it fills the charge,
// which must be zero before. After an error the charge is for FailLocal: anonymous without a
// key, of the whole burst without a cost. Its limit is zero if it is unknown.
//
// A panic in one of the application's functions is an error like any other, so
// that no request can escape the other policies by causing it.
func (p *policy) evaluate(r *http.Request, c *gcra.Charge) (applies bool, failed *policyError) {
	function := ""
	defer func() {
		if v := recover(); v != nil {
			applies, failed = true, &policyError{p.Name, function, recovered(v)}
		}
	}()
	c.Policy, c.Cost, c.Shadow = p.Name, 1, p.Shadow
	p.useLimit(c, p.Limit)
	if p.Skip != nil {
		function = "Skip"
		if p.Skip(r) {
			return false, nil
		}
	}
	if p.LimitFor != nil {
		function = "LimitFor"
		limit := p.LimitFor(r)
		if limit == (gcra.Limit{}) && p.Override == nil {
			p.noteUnlimited(r)
			return false, nil
		}
		if err := p.setLimit(c, limit); err != nil {
			return true, &policyError{p.Name, function, fmt.Errorf("limit for the request is %v: %w", limit, err)}
		}
	}
	function = "Key"
	subject, err := p.Key(r)
	if err != nil {
		return true, &policyError{p.Name, function, err}
	}
	c.Subject = subject
	if p.Override != nil {
		function = "Override"
		applies, err := p.override(c)
		if err != nil {
			return true, &policyError{p.Name, function, err}
		}
		if !applies {
			return false, nil
		}
	}
	if p.Cost != nil {
		function = "Cost"
		c.Cost = c.Limit.Capacity() // stays if Cost fails, as a client may have caused that
		cost := p.Cost(r)
		if cost < 0 {
			return true, &policyError{p.Name, function, fmt.Errorf("cost of the request is %d; want 0 or more", cost)}
		}
		c.Cost = cost
	}
	return true, nil
}

// override sets the limit that Override has for the charge's subject, and reports whether
// the policy applies.
func (p *policy) override(c *gcra.Charge) (applies bool, err error) {
	limit, overridden := p.Override(c.Subject)
	if overridden {
		if err := p.setLimit(c, limit); err != nil {
			return false, fmt.Errorf("limit for the key is %v: %w", limit, err)
		}
	}
	if c.Limit != (gcra.Limit{}) {
		return true, nil
	}
	if overridden {
		p.note("", false, noNotice) // LimitFor is not to blame
	} else {
		p.note(c.Subject, false, noNotice)
	}
	return false, nil
}

// setLimit sets the charge's limit to one that a function returned. The zero Limit is
// valid: the policy does not apply.
func (p *policy) setLimit(c *gcra.Charge, limit gcra.Limit) error {
	if limit != (gcra.Limit{}) {
		if err := checkLimit(p.limiter.store, limit); err != nil {
			return err
		}
		if err := p.checkDebt(p.limiter.store, limit); err != nil {
			return fmt.Errorf("MaxDebt %w", err)
		}
	}
	p.useLimit(c, limit)
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
