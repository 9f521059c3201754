package middleware

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/pattern"
)

// policy is a Policy made ready for requests.
type policy struct {
	Policy
	routes []*pattern.Pattern
	text   text
}

// ask finds out whether the policy applies to the request, and what it takes
// then. It fills the charge as far as it gets: after an error the charge is the
// stricter guess, and one without a limit if that is what is missing.
//
// The functions that it calls are the application's. A panic in one of them is
// an error like any other, so that it cannot be used to slip past the other
// policies.
func (p *policy) ask(r *http.Request, c *gcra.Charge) (applies bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			applies, err = true, &policyError{p.Name, recovered(v)}
		}
	}()
	*c = gcra.Charge{Policy: p.Name, Limit: p.Limit, Cost: 1, MaxDelay: p.MaxDelay, Shadow: p.Shadow}
	if p.Skip != nil && p.Skip(r) {
		return false, nil
	}
	if p.LimitFor != nil {
		limit := p.LimitFor(r)
		if limit == (gcra.Limit{}) {
			return false, nil
		}
		if err := limit.Validate(); err != nil {
			return true, &policyError{p.Name, fmt.Errorf("limit for the request is %v: %w", limit, err)}
		}
		c.Limit = limit
	}
	if c.Subject, err = p.Key(r); err != nil {
		c.Subject = ""
		return true, &policyError{p.Name, err}
	}
	if p.Cost != nil {
		c.Cost = c.Limit.Capacity() // should it fail: a client may have made it
		cost := p.Cost(r)
		if cost < 0 {
			return true, &policyError{p.Name, fmt.Errorf("cost of the request is %d; want 0 or more", cost)}
		}
		c.Cost = int64(cost)
	}
	return true, nil
}

// policyError says which policy could not be decided.
type policyError struct {
	policy string
	cause  error
}

func (e *policyError) Error() string { return "ratelimit: policy " + e.policy + ": " + e.cause.Error() }
func (e *policyError) Unwrap() error { return e.cause }

// recovered makes an error of what recover gave.
func recovered(v any) error {
	if err, ok := v.(error); ok {
		return fmt.Errorf("panic: %w", err)
	}
	return errors.New("panic: " + fmt.Sprint(v))
}
