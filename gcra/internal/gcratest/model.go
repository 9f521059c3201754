// Package gcratest holds what the tests of package gcra and of its stores share:
// a model of the algorithm, and what the property tests draw.
package gcratest

import (
	"context"
	"math/big"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// A Model is the algorithm as the documentation of package gcra states it,
// written a second time: in numbers of any size, without a thought for speed, on
// a copy of the state wherever it may have to be restored. It is a [gcra.Store].
type Model struct {
	Now  int64 // ticks
	tats map[[2]string]*big.Int
}

// NewModel returns a model with full buckets.
func NewModel() *Model { return &Model{tats: make(map[[2]string]*big.Int)} }

func ticks(d time.Duration) *big.Int { return big.NewInt(int64(d / Tick)) }

// Emission is T = Per/Count to the nearest tick, halves up.
func Emission(l gcra.Limit) *big.Int {
	t := big.NewRat(int64(l.Per), l.Count)
	t.Quo(t, big.NewRat(int64(Tick), 1))
	t.Add(t, big.NewRat(1, 2))
	return new(big.Int).Quo(t.Num(), t.Denom())
}

// Take implements [gcra.Store].
func (m *Model) Take(_ context.Context, charges []gcra.Charge) (bool, error) {
	m.apply(charges, false)
	return Passed(charges), nil
}

// Refund implements [gcra.Store].
func (m *Model) Refund(_ context.Context, charges []gcra.Charge) error {
	m.apply(charges, true)
	return nil
}

func (m *Model) apply(charges []gcra.Charge, refund bool) {
	now := big.NewInt(m.Now)
	before := make(map[[2]string]*big.Int) // the state, should the admission be denied
	passes := true
	type turn struct {
		start *big.Int // t0: where the TAT stood when the charge had its turn
		own   bool     // its own limit admits
	}
	var turns []turn
	for _, c := range charges {
		key := [2]string{c.Subject, c.Policy}
		tat, ok := m.tats[key]
		if !ok {
			tat = now
		}
		if _, seen := before[key]; !seen {
			before[key] = tat
		}

		t := Emission(c.Limit)
		full := new(big.Int).Mul(t, big.NewInt(Burst(c.Limit))) // B·T
		top := new(big.Int).Add(now, full)
		top.Add(top, ticks(c.MaxDelay))
		start := least(greatest(tat, now), top)

		within := c.MaxWait
		if within == 0 || within > c.MaxDelay {
			within = c.MaxDelay
		}
		end := new(big.Int).Mul(t, big.NewInt(c.Cost))
		if refund {
			end.Neg(end)
		}
		end.Add(end, start)
		latest := new(big.Int).Add(now, full)
		latest.Add(latest, ticks(within))
		never := !refund && c.Cost > Burst(c.Limit)
		own := refund || c.Cost == 0 || !never && end.Cmp(latest) <= 0

		if c.Cost > 0 && !refund && !never && tat.Cmp(top) > 0 {
			// Stays, whatever comes of the admission.
			m.tats[key] = top
			before[key] = least(before[key], top)
		}
		if own && c.Cost > 0 {
			m.tats[key] = greatest(end, now)
		}
		if !own && !c.Shadow {
			passes = false
		}
		turns = append(turns, turn{start, own})
	}
	if !passes {
		for key, tat := range before {
			m.tats[key] = tat
		}
	}
	for i := range charges {
		charges[i].Result = describe(charges[i], now, turns[i].start, turns[i].own, passes && turns[i].own, refund)
	}
}

func describe(c gcra.Charge, now, start *big.Int, own, taken, refund bool) gcra.Result {
	t := Emission(c.Limit)
	full := new(big.Int).Mul(t, big.NewInt(Burst(c.Limit)))
	cost := new(big.Int).Mul(t, big.NewInt(c.Cost))
	ahead := new(big.Int).Sub(start, now)
	r := gcra.Result{Allowed: own, Never: !refund && c.Cost > Burst(c.Limit)}
	if !own && !r.Never {
		within := c.MaxDelay
		if c.MaxWait > 0 && c.MaxWait < within {
			within = c.MaxWait
		}
		retry := new(big.Int).Add(ahead, cost)
		retry.Sub(retry, full)
		retry.Sub(retry, ticks(within))
		r.RetryAfter = duration(retry)
	}
	if taken {
		if refund {
			cost.Neg(cost)
		}
		ahead.Add(ahead, cost)
		ahead = greatest(ahead, new(big.Int))
		if !refund && c.Cost > 0 {
			r.Delay = duration(greatest(new(big.Int).Sub(ahead, full), new(big.Int)))
		}
	}
	left := new(big.Int).Sub(full, ahead)
	r.Remaining = new(big.Int).Quo(greatest(left, new(big.Int)), t).Int64()
	r.ResetAfter = duration(ahead)
	return r
}

// Burst is B.
func Burst(l gcra.Limit) int64 {
	if l.Burst == 0 {
		return l.Count
	}
	return l.Burst
}

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

// Tick is the unit of time.
const Tick = 100 * time.Nanosecond

// Passed reports whether every charge that is not a shadow is allowed.
func Passed(charges []gcra.Charge) bool {
	return !slices.ContainsFunc(charges, func(c gcra.Charge) bool { return !c.Result.Allowed && !c.Shadow })
}
