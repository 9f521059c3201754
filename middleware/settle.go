package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Settle sets what the request costs these policies in the end, one or more by name,
// shadows included. They have charged an estimate: Settle gives back what was too much or
// charges the rest. It may be called again: the last cost counts. A name that the limiter did
// not have when it decided is an error; a policy that did not apply to this request is left
// alone.
//
// The rest may be more than what is left. Settle takes what is left and as many units more
// as the policy may be in debt, which later requests pay; what it cannot take is in a
// [*SettleError], except for shadows.
//
// For a quota, Settle charges the period that is current now, and gives nothing back once the
// period of the request is over. If the store fails, Settle returns its error, except for what
// [FailLocal] has charged. After an error it may be called again: then a charge may be made
// twice, and a refund is not tried again.
//
// Settle does nothing after a denial that charged nothing, for a Shadow that would have
// denied, for a policy that let the request pass by FailOpen, and for a policy after its
// Refund. It goes on if the client hangs up, and does not change Results. A negative cost
// is an error.
func (d *Decision) Settle(ctx context.Context, cost int64, policies ...string) error {
	if cost < 0 {
		return fmt.Errorf("ratelimit: settle: cost is %d; want 0 or more", cost)
	}
	missing, err := d.change(ctx, "settle", policies, false, func(int64) int64 { return cost })
	if len(missing) > 0 {
		err = errors.Join(err, &SettleError{missing})
	}
	return err
}

// SettleError is the error of [Decision.Settle] where a request has cost more than is left
// with the debt that the policy allows.
type SettleError struct {
	Missing map[string]int64 // units that were not charged, by policy, without shadows
}

func (e *SettleError) Error() string {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(e.Missing)) {
		missing = append(missing, fmt.Sprintf("%d units of %s", e.Missing[name], name))
	}
	return "ratelimit: settle: " + strings.Join(missing, ", ") + " were not charged: no more were left, with the debt that the policy allows"
}

// Spend charges n more units than were charged so far to these policies, one or more by
// name: for streams, and requests whose cost is known only when they are done. See
// [Decision.Settle] for a cost that was estimated; what it says of names, quotas, failures,
// hang-ups and when it does nothing is true of Spend too. Where fewer units are left, Spend takes
// what is left and as many units more as the policy may be in debt, without an error:
// later requests pay, and this one is not denied. A negative n is an error. The error of a
// store may name the server: log it, and do not send it to the client.
func (d *Decision) Spend(ctx context.Context, n int64, policies ...string) error {
	if n < 0 {
		return fmt.Errorf("ratelimit: spend: %d units; want 0 or more", n)
	}
	_, err := d.change(ctx, "spend", policies, false, func(taken int64) int64 { return taken + n })
	return err
}

// Refund gives back what the request was charged, including what Spend and Settle have
// added: what the policies named have charged, or all if none is named. A name that the
// limiter did not have when it decided is an error; a policy that did not apply to this
// request is left alone. Call it once for a policy: a second call does nothing, also after
// an error of the store, which may have made the refund.
//
// A rate's cost is refunded also late: do not let clients cause refunds, as requests held open
// and refunded together refill the bucket. A quota's cost is not refunded once the period of
// the request is over, not even what was added in a later one. Requests that MaxDelay holds
// back already keep their delay.
//
// Refund goes on if the client hangs up, and does not change Results.
func (d *Decision) Refund(ctx context.Context, policies ...string) error {
	if len(policies) == 0 && d != nil && d.admission != nil {
		policies = d.admission.policies.names()
	}
	_, err := d.change(ctx, "refund", policies, true, nothing)
	return err
}

// nothing is what a request costs in the end if it is refunded.
func nothing(int64) int64 { return 0 }

// change is setCost for the method verb.
func (d *Decision) change(ctx context.Context, verb string, names []string, ends bool, cost func(taken int64) int64) (missing map[string]int64, err error) {
	if d == nil || d.admission == nil {
		return nil, nil
	}

	a := d.admission
	if len(names) == 0 {
		return nil, fmt.Errorf("ratelimit: %s: no policy is named; want one or more names", verb)
	}
	// A wrong name changes nothing, for the right ones neither.
	for _, name := range names {
		if _, err := a.policies.named(name); err != nil {
			return nil, fmt.Errorf("ratelimit: %s: %w", verb, err)
		}
	}

	// One change of a request at a time: each begins with what the one before has charged.
	a.mu.Lock()
	defer a.mu.Unlock()
	if missing, err = a.setCost(ctx, names, ends, cost); err != nil {
		err = fmt.Errorf("ratelimit: %s: %w", verb, err)
	}
	return missing, err
}

// setCost brings the units that the charge of each of these policies has taken to cost: it gives back
// what is too much and charges the rest, late, also after the client has gone. If that ends them, their
// cost stays. Missing are the units that could not be charged, by policy, without shadows.
func (a *admission) setCost(ctx context.Context, names []string, ends bool, cost func(taken int64) int64) (missing map[string]int64, err error) {
	ctx, missing = context.WithoutCancel(ctx), map[string]int64{}
	for _, from := range [...]source{sourceStore, sourceLocal} {
		var refunds, late []gcra.Charge
		for e, own := range a.from(from) {
			if e.status != charged || !slices.Contains(names, own.Policy) {
				continue
			}

			c, more := *own, cost(own.Result.Taken)-own.Result.Taken
			c.Peek = false // a Policy.Cost of 0 made it a peek
			if more < 0 {  // counts as given back before the call: a store that fails may have done it
				c.Cost = -more
				own.Result.Taken += more
				refunds = append(refunds, c)
			}
			if more > 0 {
				c.Cost, c.Late = more, true
				late = append(late, c)
			}
			if ends {
				e.status = decided
			}
		}

		if len(refunds) > 0 {
			err = errors.Join(err, safely(func() error { return a.store(from).Refund(ctx, refunds) }))
		}
		if len(late) > 0 {
			err = errors.Join(err, a.takeLate(ctx, from, late, missing))
		}
	}
	return missing, err
}

// takeLate takes charges late, and adds what it could not take to missing.
func (a *admission) takeLate(ctx context.Context, from source, late []gcra.Charge, missing map[string]int64) error {
	if err := safely(func() error { _, err := a.store(from).Take(ctx, late); return err }); err != nil {
		return err
	}
	for i := range late {
		c := &late[i]
		own := slices.IndexFunc(a.charges, func(o gcra.Charge) bool { return o.Policy == c.Policy })
		a.charges[own].Result.Taken += c.Result.Taken
		if rest := c.Cost - c.Result.Taken; rest > 0 && !c.Shadow {
			missing[c.Policy] = rest
		}
	}
	return nil
}
