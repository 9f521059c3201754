package redisstore

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A debt is what this server has granted alone on one bucket and Redis does not know. It
// ends when it is paid, that is charged in Redis, or has drained: the limit has given it
// back.
type debt struct {
	key    string
	charge buckets.Charge // the last one: T, the clamp, and the period of a quota
	n      int64          // servers that share the limit
	room   int64          // how far ahead of now a payment may move the TAT
	known  int64          // the TAT of the last answer
	units  int64          // that were granted, and not counted as paid
	next   int64          // when to pay again, as Redis had no room for all

	due  amount // to be paid
	sent amount // being paid
	id   string // of the payment, which is repeated until a reply comes; "" if there is none
	back int64  // ticks of sent that were refunded meanwhile
	rest int64  // ticks that were paid and are not yet a whole unit, and half a unit for rounding
}

// An amount is two levels, as this server does not know what the others did meanwhile.
// With one server they are equal.
//
//   - more is added to the TAT in Redis, where others may have charged at the same time.
//     It drains after patience. So short failures are charged in full, however often they
//     come, and a long failure with less traffic than the limit empties no bucket.
//   - least is the level of a bucket that has the grants of this server alone. After a
//     payment the TAT is at least that far ahead.
type amount struct{ more, least level }

// patience is how long several servers owe in full what they have granted alone. A server
// offers payment at least every 325 ms: payRetry, a Timeout of 50 ms and payAgain. That is
// 15 times within patience. If a third of all packets is lost and each payment needs a new
// connection, half of the payments fail, and all 15 with a probability below 1 in 10,000.
const patience = 5 * time.Second

// grant adds a charge on a bucket whose TAT is begins or, if that is later, now. Until
// begins the TAT of Redis drains, and not the debt.
func (b *debt) grant(c *buckets.Charge, now, begins, n int64) {
	b.follow(c, now)
	if n != b.n { // what has drained by now did so at the old share of the rate
		b.due = amount{b.due.more.cut(now, b.n), b.due.least.cut(now, b.n)}
		b.sent = amount{b.sent.more.cut(now, b.n), b.sent.least.cut(now, b.n)}
	}
	top := b.charge.Top
	b.charge, b.n = *c, n
	if lateOnRate(c) { // its Top is not the clamp of the limit, and serves only until that is known
		b.room = max(b.room, c.Room)
		if top > 0 {
			b.charge.Top = max(top, c.Room)
		}
	}
	b.units += c.Inc / c.Emission
	if c.Periods != nil {
		b.due.more.add(c.Inc, now, n, math.MaxInt64) // a quota gives nothing back
		return
	}
	b.due.least.add(c.Inc, now, n, begins)
	if n > 1 {
		begins += tat.Ticks(patience)
	}
	b.due.more.add(c.Inc, now, n, begins)
}

// lateOnRate reports whether a charge leaves the clamp of its limit as it is.
func lateOnRate(c *buckets.Charge) bool { return c.Late && c.Periods == nil }

// follow applies a limit that has changed, as take.lua does: no bucket is further ahead
// than its clamp.
func (b *debt) follow(c *buckets.Charge, now int64) {
	if c.Top == b.charge.Top || lateOnRate(c) {
		return
	}
	for _, l := range []*level{&b.due.more, &b.due.least, &b.sent.more, &b.sent.least} {
		l.sub(l.at(now, b.n)-c.Top, now, b.n)
	}
	b.known = min(b.known, now+c.Top)
	b.charge.Top, b.room, b.next = c.Top, c.Top, 0
}

// owes is what is added to the TAT.
func (b *debt) owes(now int64) int64 { return b.due.more.at(now, b.n) + b.sent.more.at(now, b.n) }

// alone is the level of a bucket that has the grants of this server alone.
func (b *debt) alone(now int64) int64 { return b.due.least.at(now, b.n) + b.sent.least.at(now, b.n) }

// ended reports whether nothing is owed and no reply is missing that matters.
func (b *debt) ended(now int64) bool { return b.owes(now) == 0 && b.back == 0 }

// learn records the TAT of an answer. It drains in Redis first, then sent, then due.
func (b *debt) learn(known, now int64) {
	b.known = known
	if b.charge.Periods != nil {
		return
	}
	b.sent.more.wait(known, now, b.n)
	after := known
	if sent := b.sent.more.at(now, b.n); sent > 0 {
		after = max(known, now, b.sent.more.from) + b.n*sent
	}
	b.due.more.wait(after, now, b.n)
	if b.n == 1 { // nobody else charges Redis meanwhile
		b.due.least, b.sent.least = b.due.more, b.sent.more
	}
}

// refund takes ticks from what is owed, and returns how many were owed.
func (b *debt) refund(ticks, now int64) int64 {
	due := b.due.more.sub(ticks, now, b.n)
	sent := b.sent.more.sub(ticks-due, now, b.n)
	b.due.least.sub(due, now, b.n)
	b.sent.least.sub(sent, now, b.n)
	b.back += sent
	return due + sent
}

// A payment is a debt on its way to Redis, see pay.lua.
type payment struct {
	hash                   uint64
	key, id                string
	more, least, room, top int64
	ends, begins, previous int64
}

// pay returns a payment: the one whose reply is missing, or a new one of all that is due.
func (b *debt) pay(hash uint64, now int64) payment {
	if b.id == "" {
		b.id = strconv.FormatUint(rand.Uint64(), 36)
		b.sent = amount{b.due.more.cut(now, b.n), b.due.least.cut(now, b.n)}
		b.due = amount{}
	}
	p := payment{hash: hash, key: b.key, id: b.id, more: b.sent.more.at(now, b.n), least: b.sent.least.at(now, b.n), room: b.room, top: b.charge.Top}
	if b.charge.Periods != nil {
		period := b.charge.Periods.At(b.charge.Period - 1)
		p.ends, p.begins, p.previous = period.End, period.Begin, period.Before
	}
	return p
}

// settle records the reply to a payment: how much was paid, and the TAT afterwards. It
// returns how many units that makes, and a refund if more was paid than is owed since a
// refund.
func (b *debt) settle(paid, known, now int64) (units int64, refund buckets.Charge) {
	if tooMuch := min(paid-b.sent.more.owed, b.back); tooMuch > 0 {
		refund = b.charge
		refund.Undo(tooMuch)
	}
	if rest := b.sent.more.at(now, b.n) - paid; rest > 0 {
		b.due.more.add(rest, now, b.n, 0)
		b.due.more.from = max(b.due.more.from, b.sent.more.from, now+tat.Ticks(patience)) // Redis answers: the rest is paid soon
		b.next = now + b.charge.Emission/4                                                // in less than T, Redis grants none of the room that comes
	}
	b.id, b.sent, b.back = "", amount{}, 0
	b.learn(known, now)
	b.rest += paid
	units = min(b.rest/b.charge.Emission, b.units) // T may have changed
	b.rest %= b.charge.Emission
	b.units -= units
	return units, refund
}
