package redisstore

import (
	"sync"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
)

// debts are what the local store has granted and Redis does not know, by bucket. pay.go
// charges it there. Until then the denial cache counts it, whatever Redis answers.
type debts struct {
	n  atomic.Int64 // len(of), to be read without the lock
	mu sync.Mutex   // taken after the lock of a shard of the denial cache
	of map[uint64]*debt

	granted, paid, forgotten int64 // units, see Stats

	// For pay.go.
	payer    string        // ends the markers of this store's payments
	paying   bool          // payLoop runs
	answered chan struct{} // gets a value when Redis has answered a batch
	closed   bool
}

// maxUnreported bounds the debts. One takes about 400 bytes with its key.
const maxUnreported = 1 << 16

// grant records a charge of the local store, see debt.grant. It reports whether the charge
// is not kept because there are too many debts.
func (d *debts) grant(c *buckets.Charge, key func() string, now, begins, n int64) (full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	units := c.Inc / c.Emission
	d.granted += units
	b := d.of[c.Hash]
	if b != nil && b.charge.Period != c.Period {
		d.drop(c.Hash) // its period is over
		b = nil
	}
	if b == nil {
		if full = len(d.of) >= maxUnreported; full || d.closed {
			d.forgotten += units
			return full
		}
		if d.of == nil {
			d.of = make(map[uint64]*debt)
		}
		b = &debt{key: key(), n: n, known: begins, rest: c.Emission / 2}
		d.of[c.Hash] = b
		d.n.Add(1)
	}
	b.grant(c, now, begins, n)
	return false
}

func (d *debts) drop(hash uint64) {
	delete(d.of, hash)
	d.n.Add(-1)
}

// with calls f with the debt of a bucket, if there is one.
func (d *debts) with(hash uint64, f func(b *debt)) {
	if d.n.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.of[hash]; b != nil {
		f(b)
	}
}

// ahead is how far ahead of base the TAT of a bucket is at least with its debt.
func (d *debts) ahead(c *buckets.Charge, base, now int64) (ahead int64) {
	d.with(c.Hash, func(b *debt) {
		if b.charge.Period != c.Period {
			return
		}
		if c.Takes() { // others, such as a peek without the MaxDelay of the limit, change nothing
			b.follow(c, now)
		}
		known := b.known - base
		if c.Periods != nil {
			known = max(known, 0)
		}
		ahead = max(known+b.owes(now), b.alone(now))
	})
	return ahead
}

// learn records the TAT of an answer, and returns the one that follows with the debt.
func (d *debts) learn(hash uint64, known, now int64) (at int64, owes bool) {
	d.with(hash, func(b *debt) {
		b.learn(known, now)
		at, owes = known+b.owes(now), true
	})
	return at, owes
}

// forget drops what was learned about a bucket, which is refunded, and returns the local
// TAT that follows from its debt alone.
func (d *debts) forget(hash uint64, now int64) (at int64) {
	d.with(hash, func(b *debt) {
		if b.charge.Periods == nil {
			b.known, at = now, now+b.n*b.alone(now)
		}
	})
	return at
}

// refund takes ticks from what a bucket owes, and returns how many it did not owe.
func (d *debts) refund(c *buckets.Charge, ticks, now int64) (rest int64) {
	rest = ticks
	d.with(c.Hash, func(b *debt) {
		if c.Refunds == 0 || c.Refunds == b.charge.Period {
			rest -= b.refund(ticks, now)
		}
	})
	return rest
}

// payments returns payments of debts whose time has come, a number of them at most, and
// drops the debts that have ended.
func (d *debts) payments(now int64, most int) (list []payment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for hash, b := range d.of { // from another place each time, so that all have their turn
		if b.ended(now) {
			d.drop(hash)
		} else if now >= b.next {
			list = append(list, b.pay(hash, now))
		}
		if len(list) == most {
			break
		}
	}
	return list
}

// settle records the reply to a payment, see debt.settle, and reports whether the debt
// has ended.
func (d *debts) settle(p *payment, paid, known, now int64) (ended bool, refund buckets.Charge) {
	d.with(p.hash, func(b *debt) {
		if b.id != p.id {
			return
		}
		var units int64
		units, refund = b.settle(paid, known, now)
		d.paid += units
		if ended = b.ended(now); ended {
			d.drop(p.hash)
		}
	})
	return ended, refund
}

// over drops a debt that cannot be paid, see the reply of pay.lua.
func (d *debts) over(p *payment) {
	d.with(p.hash, func(b *debt) {
		if b.id == p.id {
			d.drop(p.hash)
		}
	})
}

// counts returns the units that were granted alone, paid, and forgotten.
func (d *debts) counts() (granted, paid, forgotten int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.granted, d.paid, d.forgotten
}

// close drops all debts: there is no client left to pay them with. What is owed by now
// counts as forgotten.
func (d *debts) close(now int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.of {
		d.forgotten += min((b.owes(now)+b.rest)/b.charge.Emission, b.units)
	}
	d.closed, d.of = true, nil
	d.n.Store(0)
	d.wake()
}
