package middleware

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// FailureMode is what happens when a policy cannot be decided as configured: the
// store fails, or a function of the policy does.
type FailureMode uint8

const (
	// FailLocal goes on limiting with the state of this server alone, each limit
	// divided by [Config.Instances]. In place of a key that is unknown, the request
	// counts as anonymous; in place of a cost, it takes the whole burst. Without a
	// limit it is FailClosed.
	FailLocal FailureMode = iota

	// FailOpen lets the request pass this policy uncounted.
	FailOpen

	// FailClosed denies the request with 503 Service Unavailable.
	FailClosed
)

// followOnFailure sets the source of the charge at index i by its policy's
// OnFailure. cause may be nil.
func followOnFailure(s *requestState, i int, cause error) {
	addError(s, cause)
	e, c := &s.entries[i], &s.charges[i]
	switch mode := s.policy(i).OnFailure; {
	case mode == FailLocal && c.Limit != (gcra.Limit{}):
		e.source = sourceLocal
		localShare(c, s.policies.limiter.instances)
	case mode == FailOpen || c.Shadow: // a shadow never denies
		e.source = sourceOpen
	default:
		e.source = sourceClosed
	}
}

// localShare changes the limit of a charge to the share of one of n servers: an nth
// of the rate and of the burst.
//
// A request that costs more than the share of the burst would never pass, so it may
// overdraw a full local bucket. MaxDelay widens the clamp of all charges to that of
// the whole burst, so that a later, cheaper request does not erase the debt. MaxWait
// keeps the wider clamp from admitting more.
//
// Of a quota, servers share what is left: see localCost.
func localShare(c *gcra.Charge, n int) {
	if c.Limit.IsQuota() {
		c.Cost = localCost(c, n)
		return
	}
	part := c.Limit
	burst := part.Capacity()
	if n == 1 || part.Per > math.MaxInt64/time.Duration(n) {
		return
	}
	part.Per *= time.Duration(n)
	part.Burst = max(1, burst/int64(n))
	if c.Cost <= burst {
		part.Burst = max(part.Burst, c.Cost)
	}
	whole := part
	whole.Burst = burst
	if whole.Validate() != nil {
		return // too slow to be divided
	}
	c.Limit = part
	c.MaxWait = max(cmp.Or(c.MaxWait, c.MaxDelay), time.Nanosecond) // 0 would mean the new MaxDelay
	c.MaxDelay = min(c.MaxDelay+time.Duration(burst-part.Burst)*part.Interval(), maxDelay)
}

// localCost is the cost of a charge on one of n servers, which does not know what the
// others take meanwhile. Of a quota, each of its units stands for one on every server:
// together they take at most what was left when the store failed. Of a quota below n a
// request takes all, so that each server lets one pass.
func localCost(c *gcra.Charge, n int) int64 {
	most := c.Limit.Capacity()
	switch {
	case !c.Limit.IsQuota() || c.Cost > most:
		return c.Cost
	case c.Cost > most/int64(n):
		return most
	}
	return c.Cost * int64(n)
}

// failsClosed reports whether a policy without a decision denies the request.
func failsClosed(s *requestState) bool {
	return slices.ContainsFunc(s.entries, func(e entry) bool { return e.source == sourceClosed })
}

// addError adds err, if it is not nil, to the Decision's Err.
func addError(s *requestState, err error) {
	if err != nil {
		s.err = errors.Join(s.err, err)
	}
}

// storeError is the error of a store that did not decide.
type storeError struct{ cause error }

func (e *storeError) Error() string { return "ratelimit: store: " + e.cause.Error() }
func (e *storeError) Unwrap() error { return e.cause }
