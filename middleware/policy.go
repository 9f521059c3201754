package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/iface"
)

// policy is a compiled Policy.
type policy struct {
	Policy
	limiter *Limiter
	text    policyText
}

// evaluate fills the charge if the policy applies to the request, and the entry if an Override bans its
// key or the key refuses the request. An error is of the application's function that is named. After it
// the charge is for FailLocal: anonymous without a key, of the whole burst without a cost, with a zero limit if none is known.
func (p *policy) evaluate(r *http.Request, e *entry, c *gcra.Charge, peeks bool) (applies bool, function string, err error) {
	*c = p.Charge("", p.Limit)
	// A panic is an error like any other, so that no request can escape the other policies by causing it.
	err = safely(func() (err error) { applies, err = p.ask(r, e, c, peeks, &function); return err })
	return applies || err != nil, function, err
}

// ask calls the functions of the application, and names each before.
func (p *policy) ask(r *http.Request, e *entry, c *gcra.Charge, peeks bool, function *string) (applies bool, err error) {
	*function = "Skip"
	if p.Skip != nil && p.Skip(r) {
		return false, nil
	}

	*function = "Key"
	subject, err := p.Key(r)
	switch {
	case errors.Is(err, iface.ErrRefused):
		ban(e, c, time.Time{})
		return true, nil
	case err != nil:
		return false, err
	}
	c.Subject = subject
	if !peeks {
		p.note(subject, e.key)
	}
	if subject == "" && p.SkipAnonymous {
		return false, nil
	}

	*function = "Override"
	o, ok := p.OverrideOf(subject)
	switch {
	case ok && o.Banned:
		ban(e, c, o.Until)
		return true, nil
	case ok:
		err = p.setLimit(c, *function, o.Limit)
	}

	// An override needs no plan: it counts also where LimitFor would fail.
	if err == nil && p.LimitFor != nil && o.Limit == (gcra.Limit{}) {
		*function = "LimitFor"
		err = p.setLimit(c, *function, p.LimitFor(r))
	}
	switch {
	case err != nil:
		return false, err
	case c.Limit == gcra.Limit{}:
		return false, errors.New("the limit is missing, and so is Policy.Limit; want a limit for each plan, or gcra.Unlimited")
	case c.Limit == gcra.Unlimited():
		return false, nil
	case p.Cost == nil || peeks:
		return true, nil
	}

	*function = "Cost"
	return true, p.setCost(c, r)
}

// ban denies the charge until a time, the zero one for ever. No store is asked.
func ban(e *entry, c *gcra.Charge, until time.Time) {
	e.source, e.status = sourceBan, decided
	c.Result.Never = until.IsZero()
	if !c.Result.Never {
		c.Result.RetryAfter = max(time.Until(until), 1)
	}
	c.Result.ResetAfter = c.Result.RetryAfter
}

// setLimit sets the charge's limit to the one that a function returned. A zero limit leaves it unchanged.
func (p *policy) setLimit(c *gcra.Charge, function string, limit gcra.Limit) error {
	switch {
	case limit == (gcra.Limit{}) && c.Limit != limit:
		p.limiter.log.Report(diag.PolicyFailed, p.Name+" limit",
			function+" returned no limit, so the one without it applies: want a limit for each plan, or gcra.Unlimited", "policy", p.Name)
		return nil
	case limit != (gcra.Limit{}) && limit != gcra.Unlimited():
		if field, err := p.checkLimit(p.limiter.cfg.Store, limit); err != nil {
			return fmt.Errorf("%s of %s %w", field, function, err)
		}
	}
	// This may be a quota where the other limit is a rate, and no quota delays.
	*c = p.Charge(c.Subject, limit)
	return nil
}

// setCost sets the charge's cost to what Cost returns.
func (p *policy) setCost(c *gcra.Charge, r *http.Request) error {
	c.Cost = c.Limit.Capacity() // stays if Cost fails, as a client may have caused that
	cost := p.Cost(r)
	if cost < 0 {
		return fmt.Errorf("cost of the request is %d; want 0 or more", cost)
	}
	c.Cost, c.Peek = cost, cost == 0
	return nil
}
