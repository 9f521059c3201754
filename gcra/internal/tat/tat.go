// Package tat is the arithmetic of GCRA in integers, which package gcra and its
// stores share. The algorithm is stated in the documentation of package gcra.
// All functions are pure: time and state are arguments.
//
// A quota takes the same step with T = 1 tick, B·T = n ticks, and the end of the
// current period in place of now: the TAT is that end plus the units used. A TAT of an
// earlier period is before it, so the clamp makes it 0.
package tat

import "time"

// Where to change what: tat.go has the step, charge.go makes its parameters of a charge, calendar.go
// has the periods of quotas. Limit, Calendar, Charge and Result repeat types of package gcra, which
// imports this one.

// Time is counted in ticks of 100 ns. They are short enough that T is within
// 0.05 % of Per/Count at 10,000 units a second, and long enough that a TAT
// counted from Epoch stays below 2^53, where Lua's doubles are exact, until
// 2053. Redis stores such a number as an integer, Valkey 9 as 16 digits.
const (
	Tick  = 100        // nanoseconds
	Epoch = 1735689600 // 2025-01-01T00:00:00Z, in seconds since 1970; take.lua has the same

	maxSpan = int64(366 * 24 * time.Hour / Tick) // longest B·T and longest MaxDelay

	// MaxDelay is the longest delay that a limit may grant.
	MaxDelay = time.Duration(maxSpan) * Tick
)

// At is t in ticks since Epoch.
func At(t time.Time) int64 {
	return (t.Unix()-Epoch)*(int64(time.Second)/Tick) + int64(t.Nanosecond()/Tick)
}

// Time is the inverse of At, in UTC.
func Time(ticks int64) time.Time {
	const second = int64(time.Second) / Tick
	return time.Unix(Epoch+ticks/second, ticks%second*Tick).UTC()
}

// Ticks is d in ticks, rounded down.
func Ticks(d time.Duration) int64 { return int64(d) / Tick }

// Duration is the inverse of Ticks.
func Duration(ticks int64) time.Duration { return time.Duration(ticks) * Tick }

// Params are the parameters of one step besides the TAT and now, in ticks. Whatever takes the
// step, take.lua too, keeps these rules:
//
//  1. No TAT counts as further ahead of now than Top. Top of an ordinary charge is what its
//     limit can have made, B·T + max(D, debt·T). For a late charge and a refund it is
//     B·T + 366 days, and for a quota the largest quota of its calendar.
//  2. An ordinary charge writes also when it is denied: it brings a TAT beyond Top down to
//     it, or a clock that went back would deny until it catches up. Nothing else brings a TAT
//     of another limit down.
//  3. A charge whose cost is above the burst has Room -1. It never passes, and writes nothing.
//  4. A charge takes whole units: its Inc is a multiple of T, and so is what fits of a late one.
type Params struct {
	Emission int64 // T
	Capacity int64 // B·T
	Top      int64 // no TAT is further ahead of now (rule 1)
	Room     int64 // how far ahead of now this charge may move the TAT; -1 if the cost is above the burst
	Inc      int64 // cost·T; 0 peeks, negative refunds
	Late     bool  // never denied: takes the whole units of Inc that fit
}

// Clamp is t0 - now: how far the TAT is ahead of now, limited to what this limit
// can have made.
func (p *Params) Clamp(tat, now int64) int64 {
	return min(max(tat-now, 0), p.Top)
}

// Admits reports whether the step is allowed on a bucket whose TAT is ahead of now.
func (p *Params) Admits(ahead int64) bool {
	return p.Inc <= 0 || p.Late || ahead+p.Inc <= p.Room
}

// Takes reports whether the step can move the TAT ahead: it is no peek, no refund,
// and its cost is not above the burst (rule 3).
func (p *Params) Takes() bool { return p.Inc > 0 && p.Room >= 0 }

// Lowers reports whether the step brings a TAT beyond Top down to it (rule 2).
func (p *Params) Lowers() bool { return p.Takes() && !p.Late }

// Fits is what an admission adds to a TAT that is ahead of now: Inc or, if late, the
// whole units of it that fit (rule 4).
func (p *Params) Fits(ahead int64) int64 {
	if !p.Late || p.Inc <= 0 {
		return p.Inc
	}
	left := max(p.Room-ahead, 0)
	return min(p.Inc, left-left%p.Emission)
}

// After is how far the TAT is ahead of now after an admission.
func (p *Params) After(ahead int64) int64 { return max(ahead+p.Fits(ahead), 0) }

// Result has the fields of gcra.Result, which documents them.
type Result struct {
	Allowed    bool
	Never      bool
	Cached     bool
	Taken      int64
	Remaining  int64
	RetryAfter time.Duration
	ResetAfter time.Duration
	Delay      time.Duration
}

// KeepTATs sets the Top with which the step brings no TAT of another limit down (rule 1).
func (p *Params) KeepTATs() { p.Top = p.Capacity + maxSpan }

// Result describes, in r, a bucket whose TAT was ahead of now before the step, and
// whether the step was taken.
func (p *Params) Result(ahead int64, taken bool, r *Result) {
	*r = Result{Allowed: p.Admits(ahead), Never: p.Room < 0}
	if !r.Allowed && !r.Never {
		r.RetryAfter = Duration(ahead + p.Inc - p.Room)
	}

	if taken {
		after := p.After(ahead)
		// A late charge may have taken less than it asked for, and nobody waits for it.
		if p.Inc > 0 {
			r.Taken = (after - ahead) / p.Emission
		}
		if p.Inc > 0 && !p.Late {
			r.Delay = Duration(max(after-p.Capacity, 0))
		}
		ahead = after
	}

	r.Remaining = max(p.Capacity-ahead, 0) / p.Emission
	r.ResetAfter = Duration(ahead)
}
