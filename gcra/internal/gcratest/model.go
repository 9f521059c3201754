// Package gcratest holds what the tests of package gcra and of its stores share: a
// model of the algorithm, generators for property tests, and a comparison of a
// store with the model.
package gcratest

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Tick is the unit of time.
const Tick = 100 * time.Nanosecond

// A Model is a second implementation of the algorithm in the documentation of
// package gcra: in big integers, and on a copy of the state where it may have to
// be restored. It is a [gcra.Store].
type Model struct {
	start time.Time // when now was 0
	now   int64     // ticks
	tats  map[[3]string]*big.Int
	taken [][]gcra.Charge // for CheckSame to refund
}

// NewModel returns a model with full buckets, whose clock begins at start.
func NewModel(start time.Time) *Model {
	return &Model{start: start, tats: make(map[[3]string]*big.Int)}
}

// Advance moves the model's clock by d.
func (m *Model) Advance(d time.Duration) { m.now += int64(d / Tick) }

// Take implements [gcra.Store].
func (m *Model) Take(_ context.Context, charges []gcra.Charge) (bool, error) {
	m.apply(charges, false)
	return !slices.ContainsFunc(charges, func(c gcra.Charge) bool { return !c.Result.Allowed && !c.Shadow }), nil
}

// Refund implements [gcra.Store].
func (m *Model) Refund(_ context.Context, charges []gcra.Charge) error {
	m.apply(charges, true)
	return nil
}

// A step is one charge of an admission. Its bucket has been changed as if the admission
// were allowed.
type step struct {
	charge gcra.Charge
	cost   int64    // that it takes or refunds
	now    *big.Int // or the end of a quota's period
	start  *big.Int // t0, before the charge
	own    bool     // its own limit allows
}

func (m *Model) apply(charges []gcra.Charge, refund bool) {
	before := make(map[[3]string]*big.Int) // the state to restore if the admission is denied
	allowed := true

	var steps []step
	for i := range charges {
		s := m.step(&charges[i], refund, before)
		if !s.own && !s.charge.Shadow {
			allowed = false
		}
		steps = append(steps, s)
	}

	if !allowed {
		for key, tat := range before {
			m.tats[key] = tat
		}
	}

	for i := range charges {
		s, r := &steps[i], &charges[i].Result
		*r = s.result(allowed && s.own, refund)
		if s.charge.Limit.IsQuota() {
			r.ResetAfter = duration(s.now) - duration(big.NewInt(m.now))
			if r.RetryAfter > 0 {
				r.RetryAfter = r.ResetAfter
			}
		}
	}
}

// step takes a step, sets the period of a charge on a quota, and adds to before what a
// denial of the admission leaves in the bucket.
func (m *Model) step(charge *gcra.Charge, refund bool, before map[[3]string]*big.Int) step {
	c, now := *charge, big.NewInt(m.now)
	cost := max(c.Cost, 1)
	if c.Peek {
		cost = 0
	}

	late := c.Late && !refund && cost > 0

	if c.Limit.IsQuota() {
		end := EndOf(c.Limit.Calendar(), m.start.Add(time.Duration(m.now)*Tick))
		now = ticks(end.Sub(m.start))
		if !refund {
			charge.Period = end
		} else if !c.Period.IsZero() && !c.Period.Equal(end) {
			cost = 0
		}
	}

	key := [3]string{c.Subject, c.Policy, fmt.Sprint(c.Limit.Calendar())}
	tat, ok := m.tats[key]
	if !ok {
		tat = now
	}

	if _, seen := before[key]; !seen {
		before[key] = tat
	}

	t := Emission(c.Limit)
	full := new(big.Int).Mul(t, big.NewInt(c.Limit.Capacity())) // B·T
	debt := new(big.Int).Mul(t, big.NewInt(c.MaxDebt))

	top := new(big.Int).Add(now, full)
	switch {
	case c.Late || refund:
		top.Add(top, ticks(gcra.MaxDelay))
	default:
		top.Add(top, greatest(ticks(c.MaxDelay), debt))
	}

	if c.Limit.IsQuota() {
		top = greatest(top, tat) // a lower quota forgets nothing
	}

	start := least(greatest(tat, now), top)

	if late {
		fits := new(big.Int).Add(now, full)
		fits.Add(fits, debt)
		fits.Sub(fits, start)
		fits.Quo(greatest(fits, new(big.Int)), t)
		cost = least(fits, big.NewInt(cost)).Int64()
	}

	end := new(big.Int).Mul(t, big.NewInt(cost))
	if refund {
		end.Neg(end)
	}
	end.Add(end, start)

	latest := new(big.Int).Add(now, full)
	latest.Add(latest, maxWait(c))
	s := step{c, cost, now, start, true}
	s.own = refund || cost == 0 || late || !s.never(refund) && end.Cmp(latest) <= 0

	if cost > 0 && !refund && !late && !s.never(refund) && tat.Cmp(top) > 0 {
		// Written even if the admission is denied.
		m.tats[key] = top
		before[key] = least(before[key], top)
	}
	if s.own && cost > 0 {
		m.tats[key] = greatest(end, now)
	}
	return s
}

// never reports whether the cost is above the burst.
func (s *step) never(refund bool) bool {
	return !refund && !s.charge.Late && s.cost > s.charge.Limit.Capacity()
}

func (s *step) result(taken, refund bool) gcra.Result {
	c := s.charge
	t := Emission(c.Limit)

	full := new(big.Int).Mul(t, big.NewInt(c.Limit.Capacity()))
	cost := new(big.Int).Mul(t, big.NewInt(s.cost))
	ahead := new(big.Int).Sub(s.start, s.now)
	r := gcra.Result{Allowed: s.own, Never: s.never(refund)}

	if !s.own && !r.Never {
		retry := new(big.Int).Add(ahead, cost)
		retry.Sub(retry, full)
		retry.Sub(retry, maxWait(c))
		r.RetryAfter = duration(retry)
	}

	if taken {
		if refund {
			cost.Neg(cost)
		}
		ahead.Add(ahead, cost)
		ahead = greatest(ahead, new(big.Int))

		if !refund {
			r.Taken = s.cost
		}
		if !refund && s.cost > 0 && !c.Late {
			r.Delay = duration(greatest(new(big.Int).Sub(ahead, full), new(big.Int)))
		}
	}

	left := new(big.Int).Sub(full, ahead)
	r.Remaining = new(big.Int).Quo(greatest(left, new(big.Int)), t).Int64()
	r.ResetAfter = duration(ahead)
	return r
}

// Emission is T = Per/Count to the nearest tick, halves up, and a tick for a quota.
func Emission(l gcra.Limit) *big.Int {
	if l.IsQuota() {
		return big.NewInt(1)
	}
	t := big.NewRat(int64(l.Per), l.Count)
	t.Quo(t, big.NewRat(int64(Tick), 1))
	t.Add(t, big.NewRat(1, 2))
	return new(big.Int).Quo(t.Num(), t.Denom())
}

// maxWait is how long the caller of a charge waits.
func maxWait(c gcra.Charge) *big.Int {
	return ticks(min(c.MaxWait, c.MaxDelay))
}

func ticks(d time.Duration) *big.Int { return big.NewInt(int64(d / Tick)) }

func duration(ticks *big.Int) time.Duration { return time.Duration(ticks.Int64()) * Tick }

func least(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func greatest(a, b *big.Int) *big.Int {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}
