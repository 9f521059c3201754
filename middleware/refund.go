package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Refund gives back what this request was charged, including what Spend has
// taken since, to wherever it was taken from. It does so once: a second call
// does nothing, and neither does a call after an error, for what the store
// could not tell to have given back might be given twice. It gives the whole
// cost back however late it comes, so what a client can bring about must not
// lead to it: requests held open and given back together refill the bucket.
//
// Under MaxDelay it moves up requests that come later, and not those that wait
// already: the next one may then pass together with the last of these.
//
// A client that hangs up does not stop it. Results are not updated.
func (d *Decision) Refund(ctx context.Context) error {
	if d == nil || d.state == nil {
		return nil
	}
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	if d.state.phase.Swap(refunded) == refunded {
		return nil
	}
	return d.state.giveBack(context.WithoutCancel(ctx))
}

// giveBack refunds all that was taken.
func (v *requestState) giveBack(ctx context.Context) error {
	return errors.Join(
		v.refund(ctx, v.policies.limiter.store, sourceStore),
		v.refund(ctx, v.policies.limiter.local, sourceLocal),
	)
}

func (v *requestState) refund(ctx context.Context, s gcra.Store, w source) error {
	var charges []gcra.Charge
	for i := range v.charges {
		e, c := &v.entries[i], v.charges[i]
		if e.source != w || e.status != charged {
			continue
		}
		e.status = decided
		c.MaxDelay = maxDelay // or, after a Reload, the old limit would bring the new one's debt down
		if c.Cost > 0 {
			charges = append(charges, c)
		}
	}
	if charges == nil {
		return nil
	}
	if err := guard(func() error { return s.Refund(ctx, charges) }); err != nil {
		return fmt.Errorf("ratelimit: refund: %w", err)
	}
	return nil
}

// Spend charges n more units to every policy that the request was charged to,
// shadows aside: the true cost of a request is often known only when it is
// done. It takes at most what is left of each, so the next requests wait and
// this one, which has been served, is not denied. A request that was denied,
// or refunded, has nothing to add to.
//
// A client that hangs up does not stop it. Results are not updated. It returns
// an error if n is negative or the store does not answer.
func (d *Decision) Spend(ctx context.Context, n int64) error {
	if n < 0 {
		return fmt.Errorf("ratelimit: cannot spend %d units; want 0 or more", n)
	}
	if d == nil || d.state == nil || n == 0 {
		return nil
	}
	v := d.state
	ctx = context.WithoutCancel(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	return errors.Join(
		v.spend(ctx, v.policies.limiter.store, sourceStore, n),
		v.spend(ctx, v.policies.limiter.local, sourceLocal, n),
	)
}

// spend takes n units, or what is left, from each policy that went way w.
func (v *requestState) spend(ctx context.Context, s gcra.Store, w source, n int64) error {
	var charges []gcra.Charge
	var taken []*gcra.Charge // what each is to be added to
	for i := range v.charges {
		e, c := &v.entries[i], v.charges[i]
		if e.source != w || e.status != charged || c.Shadow {
			continue
		}
		c.Cost = n
		c.MaxWait = time.Nanosecond // what is left now; the queue of MaxDelay is for requests
		c.MaxDelay = maxDelay       // as in refund
		charges = append(charges, c)
		taken = append(taken, &v.charges[i])
	}
	together, err := takeLeft(ctx, s, charges, taken)
	if !together {
		// Others take from the same keys meanwhile, and all or none is too much to
		// ask. Alone, each gets what it can.
		for i := range charges {
			if err != nil {
				break
			}
			charges[i].Cost = n
			_, err = takeLeft(ctx, s, charges[i:i+1], taken[i:i+1])
		}
	}
	if err != nil {
		return fmt.Errorf("ratelimit: spend: %w", err)
	}
	return nil
}

// takeLeft takes the charges together, each lowered to what is left where that
// is less, and adds them to what was taken before. It reports whether it could
// do so before others took that too.
func takeLeft(ctx context.Context, s gcra.Store, charges []gcra.Charge, taken []*gcra.Charge) (done bool, err error) {
	if len(charges) == 0 {
		return true, nil
	}
	for range 3 {
		allowed, err := takeFrom(ctx, s, charges)
		if err != nil {
			return false, err
		}
		if allowed {
			for i := range charges {
				taken[i].Cost += charges[i].Cost
			}
			return true, nil
		}
		for i := range charges {
			charges[i].Cost = min(charges[i].Cost, charges[i].Result.Remaining)
		}
	}
	return false, nil
}
