// Package share divides limits among the servers that share them, for the time in which a
// server decides alone.
//
// A rate is divided: each of n servers has an nth of the rate and of the burst. A request
// that costs more than this burst would never pass, so it may take more from a full bucket. A
// quota is not divided, as each server may begin with what was left of it: a unit stands
// for one on every server, so together they take at most what was left. A request that
// needs more than that passes if nothing of the quota was used.
package share

// redisstore/local.go divides while Redis is away, and middleware/config.go for stores that cannot decide alone.

import (
	"context"
	"math"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Store charges the wrapped store by the share of one of Instances servers. Limits, costs
// and results are as of the whole limit, but Remaining is what this server lets pass.
//
//  1. In one moment all servers together let pass what the limit would, and each at least one
//     request that costs no more than the limit's burst. An nth of a rate is at least one unit
//     in gcra.MaxDelay, as slower ones are not valid.
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
		switch {
		case c.Limit.Validate() != nil || c.Cost < 0 || c.MaxDebt < 0 || c.MaxDelay < 0: // the store returns the error
		case c.Limit.IsQuota():
			divideCost(&c, int64(n), refund)
		default:
			divideRate(&c, int64(n), refund)
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
		wider := part.Limit.Capacity() - capacity(c.Limit, int64(n))
		c.Result.Remaining = max(c.Result.Remaining-wider, 0)
		if c.Limit.IsQuota() {
			unused := c.Result.Remaining == c.Limit.Capacity()
			c.Result.Remaining /= int64(n)
			if unused { // rule 1 of Store
				c.Result.Remaining = max(c.Result.Remaining, 1)
			}
			// divideCost has charged n units for each.
			c.Result.Taken /= int64(n)
		}

		if c.Result.Taken > 0 && !c.Late {
			// The part may have cost less: no more than a share can hold.
			c.Result.Taken = max(c.Cost, 1)
		}
	}
}

// capacity is the burst of a share, or the whole quota.
func capacity(l gcra.Limit, n int64) int64 {
	if l.IsQuota() {
		return l.Capacity()
	}
	return min(max(1, l.Capacity()/n), int64(gcra.MaxDelay/divided(l, n).Interval()))
}

// divided returns an nth of a rate, or the slowest that is valid, with a burst of 1.
func divided(l gcra.Limit, n int64) gcra.Limit {
	slowest := gcra.MaxDelay / time.Duration(n) // or the interval would be longer than MaxDelay
	return gcra.Limit{Count: 1, Per: min(l.Interval(), slowest) * time.Duration(n), Burst: 1}
}

// divideRate changes a charge to the share of one of n servers. MaxDebt widens the clamp (rule 2 of
// Store), and only a late charge may take what that allows.
//
// Of 100 a minute each of 4 servers has 25 a minute with a burst of 25. A request that costs 30 gets a
// burst of 30, so that it passes on a full bucket, and a MaxDebt of 70: the clamp is at 100 units for all
// requests, and the next one, with a burst of 25 and a MaxDebt of 75, does not erase the 5 units that are owed.
func divideRate(c *gcra.Charge, n int64, refund bool) {
	whole, burst, debt := c.Limit.Capacity(), capacity(c.Limit, n), c.MaxDebt
	c.Limit = divided(c.Limit, n).WithBurst(burst)
	interval := c.Limit.Interval()
	longest := int64(gcra.MaxDelay / interval) // the share forgets what takes longer to refill

	if c.Late && !refund && !c.Peek {
		c.MaxDebt = max(min((whole+debt)/n, longest)-burst, 0)
		return
	}

	if cost := max(c.Cost, 1); !refund && cost <= whole {
		c.Cost = min(cost, longest)
		c.Limit.Burst = max(burst, c.Cost)
	}
	delay := int64((c.MaxDelay + interval - 1) / interval)
	c.MaxDebt = min(whole+debt+delay, longest) - c.Limit.Burst
}

// divideCost changes a charge on a quota: n times the cost, which may be more than the quota if
// nothing of it was used. So of a quota below n each server lets one request pass (rule 1 of Store).
func divideCost(c *gcra.Charge, n int64, refund bool) {
	whole := c.Limit.Capacity()
	cost := int64(math.MaxInt64)
	if units := max(c.Cost, 1); units <= math.MaxInt64/n {
		cost = units * n
	}

	switch {
	case refund || c.Late || c.Peek:
		c.Cost = cost
		return
	case c.Cost > whole:
		return // never
	}

	wide := *c
	wide.Cost, wide.Limit.Count, wide.MaxDebt = cost, max(whole, cost), 0
	if wide.Limit.Validate() != nil { // longer than the calendar's periods in ticks
		wide.Cost, wide.Limit.Count = whole, whole
	}
	*c = wide
}
