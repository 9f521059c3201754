package redisstore

import (
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// debts are what the local store has granted and Redis does not know. pay.go charges it
// there. Until then the denial cache counts it, whatever Redis answers.
//
// A debt is two levels in ticks, as this server does not know what the others have done
// meanwhile. Each of n servers drains its levels at an nth of the rate, so together they
// drain no faster than one bucket.
//
//   - least is the level of a bucket that has only this server's grants. After a payment
//     the TAT is at least that far ahead.
//   - more is added to the TAT in Redis, which may have taken other grants at the same
//     time. It begins to drain after patience, which is longer than a server takes to
//     find that Redis answers. So in short failures all is charged, however often they
//     come, and a long failure with less traffic than the limit empties no bucket at its
//     end.
//
// With one server the two are equal, and the TAT after a payment is that of a bucket that
// has taken all grants at their time. A debt ends when it is paid or has drained.
type debts struct {
	n  atomic.Int64 // len(of), to be read without the lock
	mu sync.Mutex   // taken after the lock of a shard of the denial cache
	of map[uint64]*debt

	// For pay.go.
	payer  string      // ends the markers of this store's payments
	timer  *time.Timer // of the next round; nil before the first debt
	due    bool        // the timer is set
	paying bool        // a round is under way
	next   int64       // when an answered batch may start a round
	closed bool

	granted, paid, forgotten int64 // units, see Stats
}

// maxDebts bounds the debts. One takes about 400 bytes with its key.
const maxDebts = 1 << 16

// patience is how long what was granted alone stays charged in full. While Redis answers,
// a server finds so within a second, see minOpen; if every third packet is lost, it takes
// longer than this about once in a thousand times.
const patience = 5 * time.Second

// A debt is what one bucket owes.
type debt struct {
	key         string
	charge      buckets.Charge // the last one: T, the clamp, and the period of a quota
	n           int64          // servers that share the limit
	more, least level
	rest        int64 // ticks that are paid and not yet a whole unit, and half a unit for rounding

	// A payment is repeated under its id until a reply comes.
	id              string
	sent, sentLeast level
	refunded        int64 // ticks of sent that were refunded meanwhile

	known int64 // the TAT of the last answer
}

// A level grows with each grant, and drains from a moment on.
type level struct{ owed, from int64 }

// at is the level at a time. Each of n servers drains an nth.
func (l level) at(now, n int64) int64 {
	if now <= l.from {
		return l.owed
	}
	return max(l.owed-(now-l.from)/n, 0)
}

// add adds ticks. A level of 0 begins to drain at the time given.
func (l *level) add(ticks, now, n, from int64) {
	if l.at(now, n) == 0 {
		*l = level{0, from}
	}
	l.owed += ticks
}

// sub takes ticks, or what there is, and returns how many.
func (l *level) sub(ticks, now, n int64) int64 {
	ticks = min(ticks, l.at(now, n))
	l.owed -= ticks
	return ticks
}

// wait lets a level drain later, as the TAT in Redis drains before.
func (l *level) wait(until, now, n int64) {
	if until > now && until > l.from && l.owed > 0 {
		*l = level{l.at(now, n), until}
	}
}

// learn records the TAT of an answer.
func (b *debt) learn(known, now int64) {
	b.known = known
	if b.charge.Periods != nil {
		return
	}
	b.sent.wait(known, now, b.n)
	after := known // sent drains before more
	if sent := b.sent.at(now, b.n); sent > 0 {
		after = max(known, now, b.sent.from) + b.n*sent
	}
	b.more.wait(after, now, b.n)
	if b.n == 1 { // nobody else charges Redis meanwhile
		b.least, b.sentLeast = b.more, b.sent
	}
}

// owes is what is added to the TAT.
func (b *debt) owes(now int64) int64 { return b.more.at(now, b.n) + b.sent.at(now, b.n) }

// alone is the level of a bucket that has only the grants of this server.
func (b *debt) alone(now int64) int64 { return b.least.at(now, b.n) + b.sentLeast.at(now, b.n) }

// grant records a charge of the local store, whose TAT was begins before it, or now.
// Until then the TAT of Redis drains, and not the debt. Without room for a new debt it
// reports false.
func (d *debts) grant(c *buckets.Charge, key func() string, now, begins, n int64) (kept bool) {
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
		if len(d.of) >= maxDebts || d.closed {
			d.forgotten += units
			return false
		}
		if d.of == nil {
			d.of = make(map[uint64]*debt)
		}
		b = &debt{key: key(), known: begins, rest: c.Emission / 2}
		d.of[c.Hash] = b
		d.n.Add(1)
	}
	b.charge, b.n = *c, n
	if c.Periods != nil {
		b.more.add(c.Inc, now, n, math.MaxInt64) // what is used does not come back
		return true
	}
	b.least.add(c.Inc, now, n, begins)
	if n > 1 {
		begins += tat.Ticks(patience)
	}
	b.more.add(c.Inc, now, n, begins)
	return true
}

func (d *debts) drop(hash uint64) {
	delete(d.of, hash)
	d.n.Add(-1)
}

// ahead is how far ahead of base the TAT of a bucket is at least with its debt.
func (d *debts) ahead(c *buckets.Charge, base, now int64) int64 {
	if d.n.Load() == 0 {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.of[c.Hash]
	if b == nil || b.charge.Period != c.Period {
		return 0
	}
	known := b.known - base
	if c.Periods != nil {
		known = max(known, 0)
	}
	return max(known+b.owes(now), b.alone(now))
}

// learn records the TAT of an answer, and returns the one that follows with the debt.
func (d *debts) learn(hash uint64, known, now int64) (at int64, owes bool) {
	if d.n.Load() == 0 {
		return 0, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.of[hash]
	if b == nil {
		return 0, false
	}
	b.learn(known, now)
	return known + b.owes(now), true
}

// forget drops what was learned about a bucket, which is refunded, and returns the
// local TAT that follows from its debt alone.
func (d *debts) forget(hash uint64, now int64) (at int64) {
	if d.n.Load() == 0 {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.of[hash]
	if b == nil || b.charge.Periods != nil {
		return 0
	}
	b.known = now
	return now + b.n*b.alone(now)
}

// refund takes ticks from what a bucket owes, and returns how many it did not owe.
func (d *debts) refund(c *buckets.Charge, ticks, now int64) (rest int64) {
	if d.n.Load() == 0 {
		return ticks
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.of[c.Hash]
	if b == nil || c.Refunds != 0 && c.Refunds != b.charge.Period {
		return ticks
	}
	taken := b.more.sub(ticks, now, b.n)
	sent := b.sent.sub(ticks-taken, now, b.n)
	b.refunded += sent
	b.least.sub(taken, now, b.n)
	b.sentLeast.sub(sent, now, b.n)
	if b.owes(now) == 0 && b.id == "" {
		d.drop(c.Hash)
	}
	return ticks - taken - sent
}

// A payment is a debt on its way to Redis, see pay.lua.
type payment struct {
	hash                   uint64
	key, id                string
	more, least, top, ends int64
}

// payments returns one for each debt, and drops those that have drained.
func (d *debts) payments(now int64) (list []payment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for hash, b := range d.of {
		if b.owes(now) == 0 && b.refunded == 0 {
			d.drop(hash)
			continue
		}
		if b.id == "" {
			b.id = strconv.FormatUint(rand.Uint64(), 36)
			b.sent, b.sentLeast = level{b.more.at(now, b.n), b.more.from}, level{b.least.at(now, b.n), b.least.from}
			b.sent.from, b.sentLeast.from = max(b.sent.from, now), max(b.sentLeast.from, now)
			b.more, b.least = level{}, level{}
		}
		list = append(list, payment{hash, b.key, b.id, b.sent.at(now, b.n), b.sentLeast.at(now, b.n), b.charge.Top, b.charge.Period})
	}
	return list
}

// settle records the reply to a payment: how much was paid, and the TAT afterwards. It
// reports whether the debt has ended, and returns a refund if more was paid than is
// owed since a refund.
func (d *debts) settle(p *payment, paid, known, now int64) (ended bool, refund buckets.Charge) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.of[p.hash]
	if b == nil || b.id != p.id {
		return false, refund
	}
	if tooMuch := min(paid-b.sent.owed, b.refunded); tooMuch > 0 {
		refund = b.charge
		refund.Inc, refund.Refunds = -tooMuch, b.charge.Period
	}
	if rest := b.sent.at(now, b.n) - paid; rest > 0 {
		b.more.add(rest, now, b.n, 0)
		b.more.from = max(b.more.from, b.sent.from, now+tat.Ticks(patience)) // Redis answers, so this is paid soon
	}
	b.id, b.sent, b.sentLeast, b.refunded = "", level{}, level{}, 0
	b.learn(known, now)
	b.rest += paid
	d.paid += b.rest / b.charge.Emission
	b.rest %= b.charge.Emission
	if b.owes(now) == 0 {
		d.drop(p.hash)
		return true, refund
	}
	return false, refund
}

// over drops a debt on a quota whose period is over.
func (d *debts) over(p *payment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.of[p.hash]; b != nil && b.id == p.id {
		d.drop(p.hash)
	}
}

// counts returns the units that were granted alone, paid, and forgotten.
func (d *debts) counts() (granted, paid, forgotten int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.granted, d.paid, d.forgotten
}

// close drops all debts: there is no client left to pay them with.
func (d *debts) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed, d.of = true, nil
	d.n.Store(0)
	if d.timer != nil {
		d.timer.Stop()
	}
}
