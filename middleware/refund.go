package middleware

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Refund gives back what the request was charged, including what Spend and Settle have
// added: what the policies named have charged, or all if none is named. A name that the
// innermost limiter does not have is an error; a policy that did not apply to this request
// is left alone. Only the first call for a policy does so, even if it returns an error: a store that failed may
// have made the refund, and a second call could make it twice. The whole cost is
// refunded, however late. So do not let clients cause refunds: requests held open
// and refunded together refill the bucket.
//
// Under MaxDelay, later requests move up, but requests that wait already keep
// their delay. The next request may pass together with the last of them.
//
// Refund goes on if the client hangs up. It does not change Results.
func (d *Decision) Refund(ctx context.Context, policies ...string) error {
	if d == nil || d.state == nil {
		return nil
	}
	s := d.state
	chosen := every
	if len(policies) > 0 {
		var err error
		if chosen, err = s.named(policies); err != nil {
			return fmt.Errorf("ratelimit: refund: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase.Load() == refunded {
		return nil
	}
	if len(policies) == 0 {
		s.phase.Store(refunded)
	}
	return s.refund(ctx, chosen)
}

// every chooses all charges of a request.
func every(*gcra.Charge) bool { return true }

// named chooses the charges of the policies with these names.
func (s *requestState) named(policies []string) (chosen func(*gcra.Charge) bool, err error) {
	if len(policies) == 0 {
		return nil, errors.New("no policy is named; want one or more names")
	}
	for _, name := range policies {
		if !slices.ContainsFunc(s.policies.list, func(p *policy) bool { return p.Name == name }) {
			return nil, fmt.Errorf("policy is %.80q; want one of %s", name, s.policies.names())
		}
	}
	return func(c *gcra.Charge) bool { return slices.Contains(policies, c.Policy) }, nil
}

// Spend charges n more units than were charged so far to these policies, one or more by
// name, except for shadows: for streams, and requests whose cost is known only when they
// are done. A name that the innermost limiter does not have is an error; a policy that did
// not apply to this request is left alone.
// Where fewer units are left, it takes what is left and as many units more as the policy may
// be in debt, so later requests wait and this one is not denied. After a denial or a Refund,
// Spend does nothing. See [Decision.Settle] for a cost that was estimated.
//
// Spend goes on if the client hangs up. It does not change Results. It returns
// an error if n is negative or the store fails. The error names the store: log it,
// and do not send it to the client.
func (d *Decision) Spend(ctx context.Context, n int64, policies ...string) error {
	if n < 0 {
		return fmt.Errorf("ratelimit: spend: %d units; want 0 or more", n)
	}
	if d == nil || d.state == nil {
		return nil
	}
	s := d.state
	chosen, err := s.named(policies)
	if err != nil {
		return fmt.Errorf("ratelimit: spend: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	_, err = s.setCost(ctx, func(c *gcra.Charge) int64 {
		if c.Shadow || !chosen(c) {
			return c.Result.Taken
		}
		return c.Result.Taken + n
	})
	if err != nil {
		return fmt.Errorf("ratelimit: spend: %w", err)
	}
	return nil
}

// refund gives back the chosen charges, as far as they were taken.
func (s *requestState) refund(ctx context.Context, chosen func(*gcra.Charge) bool) error {
	_, err := s.setCost(ctx, func(c *gcra.Charge) int64 {
		if chosen(c) {
			return 0
		}
		return c.Result.Taken
	})
	for i := range s.entries {
		if s.entries[i].status == charged && chosen(&s.charges[i]) {
			s.entries[i].status = decided
		}
	}
	if err != nil {
		return fmt.Errorf("ratelimit: refund: %w", err)
	}
	return nil
}

// setCost brings the units that each charge has taken to cost: it gives back what is too
// much and charges the rest, late, also after the client has gone. Missing are the units
// that could not be charged, by policy, without shadows.
func (s *requestState) setCost(ctx context.Context, cost func(*gcra.Charge) int64) (missing map[string]int64, err error) {
	ctx, missing = context.WithoutCancel(ctx), map[string]int64{}
	for _, from := range [...]source{sourceStore, sourceLocal} {
		refunds, late := s.changes(from, cost)
		if len(refunds) > 0 {
			err = errors.Join(err, safely(func() error { return s.store(from).Refund(ctx, refunds) }))
		}
		if len(late) > 0 {
			err = errors.Join(err, s.takeLate(ctx, from, late, missing))
		}
	}
	return missing, err
}

// changes returns what setCost gives back to this source and what it charges there. What it
// gives back counts as given back from now on: a store that fails may have done it.
func (s *requestState) changes(from source, cost func(*gcra.Charge) int64) (refunds, late []gcra.Charge) {
	for i := range s.charges {
		own := &s.charges[i]
		if s.entries[i].source != from || s.entries[i].status != charged {
			continue
		}

		c := *own
		c.Peek = false
		switch more := cost(own) - own.Result.Taken; {
		case more < 0:
			c.Cost = -more
			own.Result.Taken += more
			refunds = append(refunds, c)
		case more > 0:
			c.Cost, c.Late = more, true
			late = append(late, c)
		}
	}
	return refunds, late
}

// takeLate takes charges late, and adds what it could not take to missing.
func (s *requestState) takeLate(ctx context.Context, from source, late []gcra.Charge, missing map[string]int64) error {
	if _, err := safeTake(ctx, s.store(from), late); err != nil {
		return err
	}
	for i := range late {
		c := &late[i]
		own := slices.IndexFunc(s.charges, func(o gcra.Charge) bool { return o.Policy == c.Policy })
		s.charges[own].Result.Taken += c.Result.Taken
		if rest := c.Cost - c.Result.Taken; rest > 0 && !c.Shadow {
			missing[c.Policy] = rest
		}
	}
	return nil
}
