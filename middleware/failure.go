package middleware

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// source is where the decision about a charge comes from.
type source uint8

const (
	sourceStore  source = iota // the store
	sourceLocal                // FailLocal: this server's own state
	sourceOpen                 // FailOpen: none, the charge passes
	sourceClosed               // FailClosed: none, the request is denied
)

// take decides all charges: first those of the store, together, and then those
// that fail local, together. A denied request is charged nothing, whatever the
// sources.
func (l *Limiter) take(ctx context.Context, s *requestState) {
	if failsClosed(s) {
		return
	}
	allowed, err := takeFrom(ctx, s, l.store, sourceStore)
	if err != nil {
		for i := range s.entries {
			if s.entries[i].source == sourceStore {
				followOnFailure(s, i, nil)
			}
		}
		l.storeFailed(s, l.store, err, consequences(s))
		addError(s, &storeError{err})
		allowed = !failsClosed(s)
	}
	if !allowed {
		return
	}
	// The local state comes last, so only the store may have to give back.
	allowed, err = takeFrom(ctx, s, l.local, sourceLocal)
	if err != nil {
		l.storeFailed(s, l.local, err, sourceClosed.consequence("Store"))
		addError(s, err)
	}
	if !allowed {
		if err := refundAll(ctx, s); err != nil {
			l.storeFailed(s, l.store, err, "charged although they are denied")
			addError(s, err)
		}
	}
}

// takeFrom takes the charges that have that source from the store, in one
// admission.
func takeFrom(ctx context.Context, s *requestState, store gcra.Store, from source) (allowed bool, err error) {
	n := 0
	for i := range s.entries {
		if s.entries[i].source == from {
			n++
		}
	}
	if n == 0 {
		return true, nil
	}
	charges := s.charges
	if n < len(charges) {
		charges = make([]gcra.Charge, 0, n)
		for i := range s.charges {
			if s.entries[i].source == from {
				charges = append(charges, s.charges[i])
			}
		}
	}
	if allowed, err = safeTake(ctx, store, charges); err != nil {
		return false, err
	}
	next := 0
	for i := range s.charges {
		if e := &s.entries[i]; e.source == from {
			s.charges[i].Result = charges[next].Result
			e.status = decided
			if allowed && s.charges[i].Result.Allowed {
				e.status = charged
			}
			next++
		}
	}
	return allowed, nil
}

// followOnFailure gives the charge at index i the source that its policy's
// OnFailure asks for. cause may be nil.
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

// localShare changes a charge to this server's share of its limit where n
// servers have equal shares: an nth of the rate and of the burst.
//
// A request that costs more than the share of the burst would never pass, so it
// may overdraw a full local bucket. MaxDelay widens the clamp of all charges to
// that of the whole burst, so that a later cheap request does not erase the
// debt, and MaxWait keeps the extra room from admitting anything.
func localShare(c *gcra.Charge, n int) {
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
	c.MaxWait = max(c.MaxDelay, time.Nanosecond) // 0 would mean the new MaxDelay
	c.MaxDelay = min(c.MaxDelay+time.Duration(burst-part.Burst)*part.Interval(), maxDelay)
}

// failsClosed reports whether a policy without a decision denies the request.
func failsClosed(s *requestState) bool {
	return slices.ContainsFunc(s.entries, func(e entry) bool { return e.source == sourceClosed })
}

// addError adds err, if it is not nil, to the Decision's Err.
func addError(s *requestState, err error) {
	if err != nil {
		s.decision.Err = errors.Join(s.decision.Err, err)
	}
}

// safeTake is the store's Take, with an error in place of a panic.
func safeTake(ctx context.Context, store gcra.Store, charges []gcra.Charge) (allowed bool, err error) {
	err = safely(func() (err error) {
		allowed, err = store.Take(ctx, charges)
		return err
	})
	return allowed, err
}

// safely calls f and returns its error, or its panic as an error.
func safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovered(p)
		}
	}()
	return f()
}

// storeError is the error of a store that did not decide.
type storeError struct{ cause error }

func (e *storeError) Error() string { return "ratelimit: store: " + e.cause.Error() }
func (e *storeError) Unwrap() error { return e.cause }
