// Package share divides limits among the servers that share them, for the time in which a
// server decides alone.
//
// A unit that a server grants counts n times, as if each of n servers had granted one. So each may begin
// with what was left of the limit, and has an nth of that, of the rate and of the burst; together they
// grant at most what was left. A request that needs more than this share passes if the bucket is full.
package share

// redisstore/local.go divides while Redis is away, and middleware/config.go for stores that cannot decide alone.

import (
	"context"
	"math"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Store charges the wrapped store by the share of one of Instances servers. Limits, costs
// and results are as of the whole limit, but Remaining is what this server lets pass.
//
//  1. In one moment all servers together let pass what the limit would, and each at least one
//     request that costs no more than the limit's burst. What would take longer than
//     gcra.MaxDelay to refill is forgotten, as such limits are not valid.
//  2. A share has the clamp of the whole limit. Otherwise a later, cheaper request would
//     erase the debt of one that took more than the share.
type Store struct {
	gcra.Store
	Instances int // 0 means 1
}

// Take implements [gcra.Store].
func (s Store) Take(ctx context.Context, charges []gcra.Charge) (allowed bool, err error) {
	parts := Charges(charges, s.Instances, false)
	allowed, err = s.Store.Take(ctx, parts)
	Results(charges, parts, s.Instances)
	return allowed, err
}

// Refund implements [gcra.Store].
func (s Store) Refund(ctx context.Context, charges []gcra.Charge) error {
	parts := Charges(charges, s.Instances, true)
	err := s.Store.Refund(ctx, parts)
	Results(charges, parts, s.Instances)
	return err
}

// Charges returns what one of n servers charges in place of these charges or refunds. With
// one server they are the charges themselves.
func Charges(charges []gcra.Charge, n int, refund bool) []gcra.Charge {
	if n <= 1 {
		return charges
	}
	parts := make([]gcra.Charge, len(charges))
	for i, c := range charges {
		// The store returns the error of an invalid charge.
		if c.Limit.Validate() == nil && c.Cost >= 0 && c.MaxDebt >= 0 && c.MaxDelay >= 0 {
			divide(&c, int64(n), refund)
		}
		parts[i] = c
	}
	return parts
}

// Results sets the results and periods of charges, which Charges has divided into parts.
func Results(charges, parts []gcra.Charge, n int) {
	if n <= 1 {
		return
	}
	for i := range charges {
		c, part := &charges[i], &parts[i]
		c.Result, c.Period = part.Result, part.Period
		if c.Limit.Validate() != nil {
			continue
		}

		// What only this request may take is not left for others.
		whole := c.Limit.Capacity()
		unused := part.Result.Remaining == part.Limit.Capacity()
		c.Result.Remaining = max(part.Result.Remaining-part.Limit.Capacity()+whole, 0) / int64(n)
		if unused { // rule 1 of Store
			c.Result.Remaining = max(c.Result.Remaining, 1)
		}

		switch {
		case c.Late:
			c.Result.Taken /= int64(n)
		case c.Result.Taken > 0: // also of a share that has forgotten some of it
			c.Result.Taken = max(c.Cost, 1)
		}
	}
}

// divide changes a charge to the share of one of n servers: its cost counts n times. If that is more than the limit, the
// limit is wider for this charge, so that it passes on a full bucket (rule 1 of Store). On a rate MaxDebt makes the clamp
// the same for all charges (rule 2); only a late charge may take what it allows, so that keeps its own.
//
// Of 100 a minute one of 4 servers charges 4 units for each. A request that costs 30 takes 120 units of a limit with a burst of
// 120. The clamp is at 400 units, so the next request, with a burst of 100, does not erase the 20 that are owed.
func divide(c *gcra.Charge, n int64, refund bool) {
	whole, cost, longest := c.Limit.Capacity(), max(c.Cost, 1), c.Limit.Capacity()
	clamp := whole
	if interval := c.Limit.Interval(); interval > 0 {
		longest = int64(gcra.MaxDelay / interval) // what takes longer to refill is not valid
		clamp = min(whole+c.MaxDebt+int64((c.MaxDelay+interval-1)/interval), math.MaxInt64/n) * n
	}

	if c.Cost = min(cost, math.MaxInt64/n) * n; refund || c.Late {
		return
	}
	if cost <= whole {
		if widened(c.Limit, c.Cost).Validate() != nil { // a share forgets the rest
			c.Cost = longest
		}
		c.Limit = widened(c.Limit, c.Cost)
	}
	c.MaxDebt = max(min(clamp, longest)-c.Limit.Capacity(), 0)
}

// widened returns the limit with room for a number of units.
func widened(l gcra.Limit, units int64) gcra.Limit {
	switch {
	case units <= l.Capacity():
		return l
	case l.IsQuota():
		l.Count = units
		return l
	}
	return l.WithBurst(units)
}
