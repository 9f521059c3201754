package gcra_test

import (
	"context"
	"math/big"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// law is the law as DESIGN and the package comment state it, written a second
// time: in numbers of any size, without a thought for speed, on a state that is
// copied where it might have to be taken back. It is a [gcra.Store].
type law struct {
	now  int64 // ticks
	tats map[[2]string]*big.Int
}

func newLaw() *law { return &law{tats: make(map[[2]string]*big.Int)} }

func ticks(d time.Duration) *big.Int { return big.NewInt(int64(d / tick)) }

// emissionOf is T = Per/Count to the nearest tick, halves up.
func emissionOf(l gcra.Limit) *big.Int {
	t := big.NewRat(int64(l.Per), l.Count)
	t.Quo(t, big.NewRat(int64(tick), 1))
	t.Add(t, big.NewRat(1, 2))
	return new(big.Int).Quo(t.Num(), t.Denom())
}

func (l *law) Take(_ context.Context, charges []gcra.Charge) (bool, error) {
	l.apply(charges, false)
	return passed(charges), nil
}

func (l *law) Refund(_ context.Context, charges []gcra.Charge) error {
	l.apply(charges, true)
	return nil
}

func (l *law) apply(charges []gcra.Charge, refund bool) {
	now := big.NewInt(l.now)
	before := make(map[[2]string]*big.Int) // the state, should the admission be refused
	passes := true
	type turn struct {
		start *big.Int // t0: where the TAT stood when the charge had its turn
		own   bool     // its own limit admits
	}
	var turns []turn
	for _, c := range charges {
		key := [2]string{c.Subject, c.Policy}
		tat, ok := l.tats[key]
		if !ok {
			tat = now
		}
		if _, seen := before[key]; !seen {
			before[key] = tat
		}

		t := emissionOf(c.Limit)
		full := new(big.Int).Mul(t, big.NewInt(burst(c.Limit))) // B·T
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
		never := !refund && c.Cost > burst(c.Limit)
		own := refund || c.Cost == 0 || !never && end.Cmp(latest) <= 0

		if c.Cost > 0 && !refund && !never && tat.Cmp(top) > 0 {
			// Stays, whatever comes of the admission.
			l.tats[key] = top
			before[key] = least(before[key], top)
		}
		if own && c.Cost > 0 {
			l.tats[key] = greatest(end, now)
		}
		if !own && !c.Shadow {
			passes = false
		}
		turns = append(turns, turn{start, own})
	}
	if !passes {
		for key, tat := range before {
			l.tats[key] = tat
		}
	}
	for i := range charges {
		charges[i].Result = describe(charges[i], now, turns[i].start, turns[i].own, passes && turns[i].own, refund)
	}
}

func describe(c gcra.Charge, now, start *big.Int, own, taken, refund bool) gcra.Result {
	t := emissionOf(c.Limit)
	full := new(big.Int).Mul(t, big.NewInt(burst(c.Limit)))
	cost := new(big.Int).Mul(t, big.NewInt(c.Cost))
	ahead := new(big.Int).Sub(start, now)
	r := gcra.Result{Allowed: own, Never: !refund && c.Cost > burst(c.Limit)}
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

func burst(l gcra.Limit) int64 {
	if l.Burst == 0 {
		return l.Count
	}
	return l.Burst
}

func duration(ticks *big.Int) time.Duration { return time.Duration(ticks.Int64()) * tick }

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
