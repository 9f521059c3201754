package middleware

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// admission is what one limiter charges for one request, and what was decided about it.
//
//  1. entries[i] is about charges[i]. The charges are of the policies that apply, in order. While
//     a policy's functions run, its entry is there and its charge is not.
//  2. Until its Decision is handed out, to an observer or to the caller, only the goroutine of
//     Allow, Admit, Decide or Peek uses it.
//  3. From then on it is read-only, except for what mu guards (the status of entries, Result.Taken
//     of charges, and made, once) and for described, which Admit sets before the phase is settled.
//  4. The admissions in outer have been handed out, so rule 3 holds for them.
type admission struct {
	policies  *policies  // of the limiter, when the request came
	outer     *admission // of the next outer limiter that has decided; nil if there is none, and for Decide and Peek
	entries   []entry
	charges   []gcra.Charge
	err       error        // why policies followed their OnFailure
	described *gcra.Result // what the triple of the fields describes, of this limiter or an outer one; nil if nothing

	mu   sync.Mutex
	made atomic.Pointer[Decision] // see decision
}

// entry is what an admission keeps about a charge.
type entry struct {
	policy uint8     // index in policies.list
	key    keyNotice // what the policy's Key reported
	source source
	status chargeStatus
}

// keyNotice is why a key may be empty.
type keyNotice uint8

const (
	noNotice  keyNotice = iota
	noUser              // Key looked for a user and found none
	noRoute             // Key looked for the route and found none
	explained           // Key reported another problem, which is logged
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

// chargeStatus says whether a charge was decided and taken.
type chargeStatus uint8

const (
	undecided chargeStatus = iota
	decided                // its Result counts
	charged                // its Result counts, and its Result.Taken units are not refunded
)

// makeRoom makes room for the entries and charges of n policies: with one allocation for up
// to four, unless there is room.
func (a *admission) makeRoom(n int) {
	switch {
	case n <= cap(a.charges):
	case n <= 4:
		room := new(struct {
			entries [4]entry
			charges [4]gcra.Charge
		})
		a.entries, a.charges = room.entries[:0], room.charges[:0]
	default:
		a.entries, a.charges = make([]entry, 0, n), make([]gcra.Charge, 0, n)
	}
}

// evaluating reports whether a policy's functions are running.
func (a *admission) evaluating() bool { return len(a.entries) > len(a.charges) }

// policy is the policy of the charge at index i.
func (a *admission) policy(i int) *policy { return a.policies.list[a.entries[i].policy] }

// from are the charges with this source.
func (a *admission) from(source source) iter.Seq2[*entry, *gcra.Charge] {
	return func(yield func(*entry, *gcra.Charge) bool) {
		for i := range a.entries {
			if a.entries[i].source == source && !yield(&a.entries[i], &a.charges[i]) {
				return
			}
		}
	}
}

// store is the store that charges with this source are taken from.
func (a *admission) store(from source) gcra.Store {
	if from == sourceLocal {
		return a.policies.limiter.local
	}
	return a.policies.limiter.cfg.Store
}

// stops reports whether a charge with this source, sourceClosed or sourceBan, denies the request
// without a store. Charges of shadows do not.
func (a *admission) stops(source source) bool {
	for _, c := range a.from(source) {
		if !c.Shadow {
			return true
		}
	}
	return false
}

// fail sets the source of the charge at index i by its policy's OnFailure. Where the local state
// fails too, FailLocal is FailClosed.
func (a *admission) fail(i int) {
	e, c := &a.entries[i], &a.charges[i]
	switch mode := a.policy(i).OnFailure; {
	case mode == FailLocal && c.Limit != (gcra.Limit{}) && e.source != sourceLocal:
		e.source = sourceLocal
	case mode == FailOpen || c.Shadow: // a shadow never denies
		e.source = sourceOpen
	default:
		e.source = sourceClosed
	}
}

// take decides all charges: first the store's, together, and then what fails local,
// together. A request that it denies is charged nothing, whatever the
// sources, unless the refund fails. ctx is for the stores.
func (l *Limiter) take(ctx context.Context, a *admission) {
	if a.stops(sourceClosed) || a.stops(sourceBan) {
		return
	}

	// The local state comes last, so only the store may have to refund.
	if !l.chargeFrom(ctx, a, sourceStore) || l.chargeFrom(ctx, a, sourceLocal) {
		return
	}

	if _, err := a.setCost(ctx, a.policies.names(), true, nothing); err != nil {
		l.storeFailed(l.cfg.Store, err, "charged although they are denied")
		a.err = errors.Join(a.err, fmt.Errorf("ratelimit: refund: %w", err))
	}
}

// chargeFrom takes the charges with this source. If their store fails, they get another source, and
// it reports whether the request may pass nevertheless.
func (l *Limiter) chargeFrom(ctx context.Context, a *admission, from source) (allowed bool) {
	allowed, err := a.takeFrom(ctx, from)
	if err == nil {
		return allowed
	}

	// Each policy has its own OnFailure, so one failure may have several consequences.
	store := a.store(from)
	for i := range a.entries {
		if e := &a.entries[i]; e.source == from {
			a.fail(i)
			l.storeFailed(store, err, e.source.consequence("Store"))
		}
	}
	a.err = errors.Join(a.err, fmt.Errorf("ratelimit: store: %w", err))
	return !a.stops(sourceClosed)
}

// takeFrom takes the charges with this source in one admission of its store.
func (a *admission) takeFrom(ctx context.Context, from source) (allowed bool, err error) {
	n := 0
	for range a.from(from) {
		n++
	}
	if n == 0 {
		return true, nil
	}

	// A store takes all that it gets or none, so it gets a copy without the charges of other sources.
	charges := a.charges
	if n < len(charges) {
		charges = make([]gcra.Charge, 0, n)
		for _, c := range a.from(from) {
			charges = append(charges, *c)
		}
	}
	err = safely(func() (err error) { allowed, err = a.store(from).Take(ctx, charges); return err })
	if err != nil {
		return false, err
	}

	for e, c := range a.from(from) {
		c.Result, c.Period = charges[0].Result, charges[0].Period // of a copy, or the same
		charges = charges[1:]
		e.status = decided
		if allowed && c.Result.Allowed {
			e.status = charged
		}
	}
	return allowed, nil
}
