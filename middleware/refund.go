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
	return refundThose(context.WithoutCancel(ctx), s, chosen)
}

// every chooses all charges of a request.
func every(int) bool { return true }

// named chooses the charges of the policies with these names.
func (s *requestState) named(policies []string) (chosen func(i int) bool, err error) {
	if len(policies) == 0 {
		return nil, errors.New("no policy is named; want one or more names")
	}
	for _, name := range policies {
		if !slices.ContainsFunc(s.policies.list, func(p *policy) bool { return p.Name == name }) {
			return nil, fmt.Errorf("policy is %.80q; want one of %s", name, s.policies.names())
		}
	}
	return func(i int) bool { return slices.Contains(policies, s.charges[i].Policy) }, nil
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
	ctx = context.WithoutCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	units := func(i int) int64 {
		if s.charges[i].Shadow || !chosen(i) {
			return 0
		}
		return n
	}
	if err := errors.Join(spend(ctx, s, sourceStore, units), spend(ctx, s, sourceLocal, units)); err != nil {
		return fmt.Errorf("ratelimit: spend: %w", err)
	}
	return nil
}

// refundThose refunds the chosen charges, as far as they were taken.
func refundThose(ctx context.Context, s *requestState, chosen func(i int) bool) error {
	whole := func(i int) int64 {
		if !chosen(i) {
			return 0
		}
		return s.charges[i].Result.Taken
	}
	err := errors.Join(refund(ctx, s, sourceStore, whole), refund(ctx, s, sourceLocal, whole))
	for i := range s.entries {
		if s.entries[i].status == charged && chosen(i) {
			s.entries[i].status = decided
		}
	}
	if err != nil {
		return fmt.Errorf("ratelimit: refund: %w", err)
	}
	return nil
}

// refund gives back some units of each charge that was taken with this source. Also after an
// error they count as given back: the store may have done it.
func refund(ctx context.Context, s *requestState, from source, units func(i int) int64) error {
	var charges []gcra.Charge
	for i := range s.charges {
		e, c := &s.entries[i], s.charges[i]
		if e.source != from || e.status != charged {
			continue
		}
		if c.Cost = units(i); c.Cost > 0 {
			c.Peek = false
			s.charges[i].Result.Taken -= c.Cost
			charges = append(charges, c)
		}
	}
	if charges == nil {
		return nil
	}
	return safely(func() error { return s.store(from).Refund(ctx, charges) })
}

// spend takes units late for each charge that was taken with this source.
func spend(ctx context.Context, s *requestState, from source, units func(i int) int64) error {
	var charges []gcra.Charge
	var taken []*gcra.Charge // the request's charge for each of charges
	for i := range s.charges {
		e, c := &s.entries[i], s.charges[i]
		if e.source != from || e.status != charged {
			continue
		}
		if c.Cost = units(i); c.Cost > 0 {
			c.Late, c.Peek = true, false
			charges, taken = append(charges, c), append(taken, &s.charges[i])
		}
	}
	if charges == nil {
		return nil
	}

	_, err := safeTake(ctx, s.store(from), charges)
	for i := 0; err == nil && i < len(charges); i++ {
		taken[i].Result.Taken += charges[i].Result.Taken
	}
	return err
}
