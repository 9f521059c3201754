package middleware

import (
	"context"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// source is where the decision about a charge comes from.
type source uint8

const (
	sourceStore  source = iota // the store
	sourceLocal                // FailLocal: this server's own state
	sourceOpen                 // FailOpen: none, the charge passes
	sourceClosed               // FailClosed: none, the request is denied
	sourceBan                  // an Override: the Result is set
)

// take decides all charges: first those of the store, together, and then those
// that fail local, together. A denied request is charged nothing, whatever the
// sources.
func (l *Limiter) take(ctx context.Context, s *requestState) {
	if failsClosed(s) || isBanned(s) {
		return
	}
	allowed, err := takeFrom(ctx, s, sourceStore)
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
	// The local state comes last, so only the store may have to refund.
	allowed, err = takeFrom(ctx, s, sourceLocal)
	if err != nil {
		from := sourceOpen // shadows alone
		for i := range s.entries {
			switch e := &s.entries[i]; {
			case e.source != sourceLocal:
			case s.charges[i].Shadow:
				e.source = sourceOpen
			default:
				e.source, from = sourceClosed, sourceClosed
			}
		}
		l.storeFailed(s, l.local, err, from.consequence("Store"))
		addError(s, err)
		allowed = from == sourceOpen
	}
	if !allowed {
		if err := s.refund(ctx, every); err != nil {
			l.storeFailed(s, l.store, err, "charged although they are denied")
			addError(s, err)
		}
	}
}

// isBanned reports whether an Override denies the request.
func isBanned(s *requestState) bool {
	for i := range s.entries {
		if s.entries[i].source == sourceBan && !s.charges[i].Shadow {
			return true
		}
	}
	return false
}

// takeFrom takes the charges with this source in one admission.
func takeFrom(ctx context.Context, s *requestState, from source) (allowed bool, err error) {
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
	if allowed, err = safeTake(ctx, s.store(from), charges); err != nil {
		return false, err
	}
	next := 0
	for i := range s.charges {
		e, c := &s.entries[i], &s.charges[i]
		if e.source != from {
			continue
		}
		if taken := &charges[next]; taken != c { // a copy
			c.Result, c.Period = taken.Result, taken.Period
		}
		next++
		e.status = decided
		if allowed && c.Result.Allowed {
			e.status = charged
		}
	}
	return allowed, nil
}

// safeTake is the store's Take, with an error in place of a panic.
func safeTake(ctx context.Context, store gcra.Store, charges []gcra.Charge) (allowed bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			allowed, err = false, recovered(p)
		}
	}()
	return store.Take(ctx, charges)
}
