package middleware

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// way is how a charge is decided.
type source uint8

const (
	sourceStore  source = iota // as asked
	sourceLocal                // on this server's own state
	sourceOpen                 // not at all: it passes
	sourceClosed               // not at all: the request is denied
)

// take decides the charges of a visit, together as far as they go the same
// way. Whatever the ways, a denied request is charged nothing.
func (l *Limiter) take(ctx context.Context, v *requestState) {
	if v.closed() {
		return
	}
	admitted, err := v.take(ctx, l.store, sourceStore)
	if err != nil {
		for i := range v.entries {
			if v.entries[i].source == sourceStore {
				v.fallBack(i, nil)
			}
		}
		l.storeFailed(v, l.store, err, v.consequences())
		v.report(&storeError{err})
		admitted = !v.closed()
	}
	if !admitted {
		return
	}
	// The last to be asked, because there is then nothing in it to give back.
	admitted, err = v.take(ctx, l.local, sourceLocal)
	if err != nil {
		l.storeFailed(v, l.local, err, sourceClosed.consequence("Store"))
		v.report(err)
	}
	if !admitted {
		if err := v.giveBack(ctx); err != nil {
			l.storeFailed(v, l.store, err, "charged although they are denied")
			v.report(err)
		}
	}
}

// fallBack sends the charge at index i the way its policy takes in an outage.
func (v *requestState) fallBack(i int, cause error) {
	e, c := &v.entries[i], &v.charges[i]
	v.report(cause)
	switch {
	case v.policy(i).OnFailure == FailLocal && c.Limit != (gcra.Limit{}):
		e.source = sourceLocal
		localShare(c, v.policies.limiter.instances)
	case v.policy(i).OnFailure == FailOpen || c.Shadow: // a shadow denies nobody
		e.source = sourceOpen
	default:
		e.source = sourceClosed
	}
}

// share turns a charge into one on this server's part of the limit, which n
// servers keep: as often one nth, as much at once one nth.
//
// A request that costs more than that at once would be denied for good. It
// passes on a bucket that is full, and its debt stands: MaxDelay keeps the clamp
// of every charge where that of the whole burst is, so that a cheap request does
// not bring the debt of a dear one down, and MaxWait admits none into it.
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
		return // so slow already that a part of it cannot be kept
	}
	c.Limit = part
	c.MaxWait = max(c.MaxDelay, time.Nanosecond) // 0 would mean as long as the new MaxDelay
	c.MaxDelay = min(c.MaxDelay+time.Duration(burst-part.Burst)*part.Interval(), maxDelay)
}

// closed reports whether a policy that could not be decided shuts the request
// out.
func (v *requestState) closed() bool {
	for i := range v.entries {
		if v.entries[i].source == sourceClosed {
			return true
		}
	}
	return false
}

func (v *requestState) report(err error) {
	if err != nil {
		v.decision.Err = errors.Join(v.decision.Err, err)
	}
}

// take decides the charges that go way w as one admission of the store s.
func (v *requestState) take(ctx context.Context, s gcra.Store, w source) (admitted bool, err error) {
	charges := v.charges
	if n := v.count(w); n == 0 {
		return true, nil
	} else if n < len(charges) {
		charges = make([]gcra.Charge, 0, n)
		for i := range v.charges {
			if v.entries[i].source == w {
				charges = append(charges, v.charges[i])
			}
		}
	}
	if admitted, err = takeFrom(ctx, s, charges); err != nil {
		return false, err
	}
	next := 0
	for i := range v.charges {
		if e := &v.entries[i]; e.source == w {
			v.charges[i].Result = charges[next].Result
			e.status = decided
			if admitted && v.charges[i].Result.Allowed {
				e.status = charged
			}
			next++
		}
	}
	return admitted, nil
}

func (v *requestState) count(w source) (n int) {
	for i := range v.entries {
		if v.entries[i].source == w {
			n++
		}
	}
	return n
}

// takeFrom is the store's Take; a panic of the store is an error.
func takeFrom(ctx context.Context, s gcra.Store, charges []gcra.Charge) (allowed bool, err error) {
	err = guard(func() (err error) {
		allowed, err = s.Take(ctx, charges)
		return err
	})
	return allowed, err
}

// guard makes an error of a store's panic.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovered(p)
		}
	}()
	return f()
}

// storeError says that no policy could be decided as asked.
type storeError struct{ cause error }

func (e *storeError) Error() string { return "ratelimit: store: " + e.cause.Error() }
func (e *storeError) Unwrap() error { return e.cause }
