package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// policy is a compiled Policy.
type policy struct {
	Policy
	limiter *Limiter
	text    policyText
	firsts  *firstRequests
	first   atomic.Pointer[firstRequests] // firsts; nil when they have passed
}

// verdict is what a policy's functions say about a request.
type verdict uint8

const (
	exempt    verdict = iota // the policy does not apply
	anonymous                // nor does it here, by SkipAnonymous
	charges                  // the charge is for a store
	banned                   // the charge's Result says so, and no store is asked
)

// evaluate fills the charge if the policy applies to the request. After an error the
// verdict means nothing, and the charge is for FailLocal: anonymous without a key, of the
// whole burst without a cost. Its limit is zero if it is unknown.
func (p *policy) evaluate(r *http.Request, c *gcra.Charge, peeks bool) (verdict, *policyError) {
	*c = p.Charge("", p.Limit)
	if skip, failed := p.askSkip(r); skip || failed != nil {
		return exempt, failed
	}

	// The plan of a request without a key is not asked for: Policy.Limit counts it.
	if failed := p.askKey(c, r); failed != nil {
		return charges, failed
	}
	if c.Subject == "" && p.SkipAnonymous {
		return anonymous, nil
	}

	// An override needs no plan: where it has a limit or a ban, a LimitFor that fails is no matter.
	noPlan := p.askLimit(c, r)
	ban, wins, failed := p.askOverride(c)
	switch {
	case failed != nil || ban:
		if c.Limit == gcra.Unlimited() {
			c.Limit = gcra.Limit{} // the plan exempts, but not from a ban: FailLocal has no limit to count under
		}
		return banned, failed
	case noPlan != nil && !wins:
		return exempt, noPlan
	case c.Limit == gcra.Unlimited():
		return exempt, nil
	case p.Cost == nil || peeks:
		return charges, nil
	}
	return charges, p.failed("Cost", safely(func() error { return p.askCost(c, r) }))
}

func (p *policy) askSkip(r *http.Request) (skip bool, _ *policyError) {
	if p.Skip == nil {
		return false, nil
	}
	failed := p.failed("Skip", safely(func() error { skip = p.Skip(r); return nil }))
	return skip, failed
}

// askKey sets the charge's subject, to "" if Key fails.
func (p *policy) askKey(c *gcra.Charge, r *http.Request) *policyError {
	subject := ""
	failed := p.failed("Key", safely(func() (err error) { subject, err = p.Key(r); return err }))
	if failed == nil {
		c.Subject = subject
	}
	return failed
}

// askLimit sets the charge's limit to what LimitFor returns.
func (p *policy) askLimit(c *gcra.Charge, r *http.Request) *policyError {
	if p.LimitFor == nil {
		return nil
	}
	return p.failed("LimitFor", safely(func() error { return p.setLimit(c, p.LimitFor(r), "the request") }))
}

// askOverride applies the Override of the charge's subject: a ban, or a limit that wins over
// the one that the charge has.
func (p *policy) askOverride(c *gcra.Charge) (ban, wins bool, _ *policyError) {
	if p.Override == nil && p.override == nil {
		return false, false, nil
	}
	failed := p.failed("Override", safely(func() (err error) { ban, wins, err = p.applyOverride(c); return err }))
	return ban, wins, failed
}

// failed returns the error of one of the application's functions, or nil. The functions are
// called safely: a panic is an error like any other, so that no request can escape the other
// policies by causing it.
func (p *policy) failed(function string, err error) *policyError {
	if err == nil {
		return nil
	}
	return &policyError{p.Name, function, err}
}

func (p *policy) applyOverride(c *gcra.Charge) (ban, wins bool, err error) {
	o, ok := p.OverrideOf(c.Subject)
	switch {
	case !ok:
		return false, false, nil
	case !o.Banned:
		err = p.setLimit(c, o.Limit, "the key")
		return false, o.Limit != (gcra.Limit{}), err
	}

	c.Result.Never = o.Until.IsZero()
	if !c.Result.Never {
		c.Result.RetryAfter = max(time.Until(o.Until), 1)
	}
	c.Result.ResetAfter = c.Result.RetryAfter
	return true, false, nil
}

// askCost sets the charge's cost to what Cost returns.
func (p *policy) askCost(c *gcra.Charge, r *http.Request) error {
	c.Cost = c.Limit.Capacity() // stays if Cost fails, as a client may have caused that
	cost := p.Cost(r)
	if cost < 0 {
		return fmt.Errorf("cost of the request is %d; want 0 or more", cost)
	}
	c.Cost, c.Peek = cost, cost == 0
	return nil
}

// setLimit sets the charge's limit to one that LimitFor or Override returned. A zero limit
// leaves the charge's limit unchanged. what names the source of the limit in errors.
func (p *policy) setLimit(c *gcra.Charge, limit gcra.Limit, what string) error {
	switch limit {
	case gcra.Limit{}:
		if c.Limit == (gcra.Limit{}) {
			return errors.New("the limit is missing, and so is Policy.Limit; want a limit for each plan, or gcra.Unlimited")
		}
		p.limiter.log.Report(diag.PolicyFailed, p.Name+" limit",
			"LimitFor or Override returned no limit, so the one without it applies: want a limit for each plan, or gcra.Unlimited", "policy", p.Name)
		return nil
	case gcra.Unlimited():
	default:
		if err := p.checkOwn(p.limiter.cfg.Store, limit); err != nil {
			return fmt.Errorf("limit for %s is %v: %w", what, limit, err)
		}
	}
	// This may be a quota where the other limit is a rate, and no quota delays.
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
