// Package gcra decides whether a request may pass, by the generic cell rate
// algorithm (ITU-T I.371; ATM Forum TM 4.1), on state that many servers share.
//
// The law. Each key holds one number, its theoretical arrival time (TAT): the
// moment at which its bucket will be full again. With the emission interval
// T = Per/Count and a burst of B units, a charge of cost units at the time now
// is decided so:
//
//	t0  = clamp(tat, now, now + B·T + MaxDelay)
//	new = t0 + cost·T
//	admit when new - now <= B·T + MaxWait:  tat = new, delay = max(0, new - now - B·T)
//	refuse otherwise:                       tat unchanged, retry after new - now - B·T - MaxWait
//
// On a clock that does not go back and state that is not lost, any interval of
// length D therefore admits at most B + D/T units. The clamp bounds what a
// clock jump, a changed limit or a damaged value can do: none refuses for
// longer than an empty bucket takes to refill, and a live limit may be changed
// at any time.
//
// A refusal writes nothing, so hammering does not extend it; but it brings a TAT
// that stands beyond the clamp down to it, or the bucket would refuse until the
// clock has caught up. An admission made of several charges takes all of them
// or none.
//
// [Memory] keeps the state in this process, [Redis] in a Redis that any number
// of processes share, on the clock of that Redis. When Redis does not answer
// within its Timeout, Take returns an error and decides nothing: what to do
// then is the caller's policy (see package middleware).
package gcra

import (
	"fmt"
	"time"
)

// Time is counted in ticks of 100 ns. They are small enough that T is within
// 0.05 % of Per/Count at 10,000 units a second, and large enough that a TAT
// counted from epoch stays below 2^53, where Lua's doubles are exact, until
// 2053. Redis keeps such a whole number as an integer, Valkey 9 as 16 digits.
const (
	tick    = 100                                // nanoseconds
	epoch   = 1735689600                         // 2025-01-01T00:00:00Z, in seconds since 1970; take.lua has the same
	maxSpan = int64(366 * 24 * time.Hour / tick) // longest B·T and longest MaxDelay
	maxWait = time.Duration(maxSpan) * tick      // the same as a duration
)

// ticksOf is t in ticks since epoch.
func ticksOf(t time.Time) int64 {
	return (t.Unix()-epoch)*(int64(time.Second)/tick) + int64(t.Nanosecond()/tick)
}

// ticksIn is d in ticks, rounded down.
func ticksIn(d time.Duration) int64 { return int64(d) / tick }

// demand is a charge in ticks: all that a step needs beside the TAT and now.
type demand struct {
	emission int64 // T
	capacity int64 // B·T
	top      int64 // B·T + MaxDelay: no TAT is further ahead of now
	room     int64 // B·T + MaxWait: how far ahead of now this caller may push it; -1 when it can never pass
	inc      int64 // cost·T; 0 peeks, negative refunds
}

// demand checks the charge and converts it. refund turns the cost around.
func (c *Charge) demand(refund bool) (d demand, err error) {
	t, err := c.terms()
	if err == nil {
		err = t.demand(c, refund, &d)
	}
	return d, err
}

// terms are what all charges of a limit have in common, whatever they cost: a
// demand without its inc.
type terms demand

// terms checks all of the charge but its cost, and converts it.
func (c *Charge) terms() (terms, error) {
	emission, span, ok := c.Limit.ticks()
	switch {
	case !ok:
		return terms{}, c.invalid(c.Limit.Validate())
	case c.MaxDelay < 0 || c.MaxDelay > maxWait:
		return terms{}, c.invalid(fmt.Errorf("MaxDelay is %v; want 0 to 366 days", c.MaxDelay))
	case c.MaxWait < 0:
		return terms{}, c.invalid(fmt.Errorf("MaxWait is %v; want 0 (as long as MaxDelay) or more", c.MaxWait))
	}
	within := c.MaxDelay
	if c.MaxWait > 0 {
		within = min(c.MaxWait, c.MaxDelay)
	}
	return terms{
		emission: emission,
		capacity: span,
		top:      span + ticksIn(c.MaxDelay),
		room:     span + ticksIn(within),
	}, nil
}

// demand adds what the charge costs, and leaves all of it in d.
func (t *terms) demand(c *Charge, refund bool, d *demand) error {
	*d = demand(*t)
	switch {
	case c.Cost < 0:
		return c.invalid(fmt.Errorf("cost is %d; want 0 or more", c.Cost))
	case refund:
		d.inc = -d.emission * min(c.Cost, d.top/d.emission+1) // no more than all, and no overflow
	case c.Cost > c.Limit.Capacity():
		d.inc, d.room = d.emission, -1
	default:
		d.inc = d.emission * c.Cost
	}
	return nil
}

func (c *Charge) invalid(err error) error {
	return fmt.Errorf("gcra: charge on policy %q: %w", clip(c.Policy), err)
}

// clamp is t0: how far ahead of now the TAT stands, once it is brought within
// what this limit can have made of it.
func (d *demand) clamp(tat, now int64) int64 {
	return min(max(tat-now, 0), d.top)
}

// admits reports whether a bucket whose TAT stands ahead of now has room.
func (d *demand) admits(ahead int64) bool {
	return d.inc <= 0 || ahead+d.inc <= d.room
}

// takes reports whether the demand may move the TAT ahead: it neither peeks nor
// refunds, and is not for more than the bucket holds.
func (d *demand) takes() bool { return d.inc > 0 && d.room >= 0 }

// take is where the TAT stands, ahead of now, once the demand is met.
func (d *demand) take(ahead int64) int64 { return max(ahead+d.inc, 0) }

// result describes, in r, a bucket that stood ahead of now when the demand came,
// and whether the demand was then met.
func (d *demand) result(ahead int64, taken bool, r *Result) {
	*r = Result{Allowed: d.admits(ahead), Never: d.room < 0}
	if !r.Allowed && !r.Never {
		r.RetryAfter = time.Duration(ahead+d.inc-d.room) * tick
	}
	if taken {
		ahead = d.take(ahead)
		if d.inc > 0 {
			r.Delay = time.Duration(max(ahead-d.capacity, 0)) * tick
		}
	}
	r.Remaining = max(d.capacity-ahead, 0) / d.emission
	r.ResetAfter = time.Duration(ahead) * tick
}
