package outage

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A bucket is what this server has granted alone on one bucket and Redis does not know. It ends when level is 0: all is
// charged in Redis, or has drained, as the limit has given it back. All amounts are in ticks.
//
//  1. level is what was granted and is not reported, at least 0. It is a queue: what was granted first drains first.
//  2. Each of n servers drains at rate/n, so together they drain no faster than the bucket refills.
//     A quota gives nothing back.
//  3. Nothing drains before from. That is not before known, as the TAT in Redis drains first. If n is above 1, it is not before
//     patience has passed since known at the first grant, or since that grant if it is later; and since each reply to a report.
//  4. sent is the front of level that is being reported: 0 <= sent <= level. Each repetition of the report has its id. Without
//     a report sent is 0 and id is "". If Redis has charged a report whose reply is lost, all of the
//     report counts as reported. That includes what drains before a repetition is answered.
//  5. A refund takes the end of level, and no more than level-sent: what is being reported stays charged.
//  6. known is the TAT of the last answer of Redis or, before the first, of the local store. A reset brings it down to now.
//  7. A report moves no TAT further ahead than charge.Top, the clamp of the limit, and is impossible beyond it. When the limit
//     changes, level and, of a rate, known come down to its Top, and from to that and patience. A late charge may be of an
//     earlier limit: it only raises Top.
type bucket struct {
	key    string
	charge buckets.Charge // the last one: T, the clamp, and the period of a quota
	n      int64

	level, from int64
	id          string
	sent        int64
	next        int64 // when to report again, as Redis had no room for all

	known int64
}

// patience is how long several servers report in full what they have granted alone, as others may have charged in Redis
// at the same time. So short failures are charged in full, however often they come, and a server that was cut off for long
// does not deny for as long. A report is sent at least every 325 ms: retryAfter, a Timeout of 50 ms and the pause of the
// reporter. That is 15 times within patience. If a third of all packets is lost and each report needs a new connection,
// half of the reports fail, and all 15 with a probability below 1 in 10,000.
const patience = 5 * time.Second

// drain takes off level what has drained by now. Every other method is called after it.
func (b *bucket) drain(now int64) {
	if now <= b.from || b.charge.Periods != nil {
		return
	}

	drained := min((now-b.from)/b.n, b.level)
	b.from += drained * b.n // what is left of a division by n counts the next time
	b.level -= drained
	b.sent = max(b.sent-drained, 0)
}

// wait lets level drain later.
func (b *bucket) wait(until int64) { b.from = max(b.from, until) }

// grant adds a charge on a bucket whose TAT is known or, if that is later, now.
func (b *bucket) grant(c *buckets.Charge, now, known, n int64) {
	b.follow(c, now)
	top := b.charge.Top
	b.charge, b.n = *c, n
	b.charge.Top = top

	if b.level == 0 {
		b.from = known
		b.bePatient(known)
	}
	b.level += c.Inc
}

// bePatient keeps invariant 3 of several servers.
func (b *bucket) bePatient(since int64) {
	if b.n > 1 {
		b.wait(since + tat.Ticks(patience))
	}
}

// follow applies a limit that has changed, as take.lua does: no bucket is further ahead than its clamp.
func (b *bucket) follow(c *buckets.Charge, now int64) {
	top := c.Top
	if c.Late { // invariant 7
		top = max(top, b.charge.Top)
	}
	if top == b.charge.Top {
		return
	}

	b.level = min(b.level, top)
	b.sent = min(b.sent, b.level)
	// Under another clamp Redis may have room at once.
	b.charge.Top, b.next = top, 0
	if c.Periods == nil {
		latest := now + top
		b.known = min(b.known, latest)
		if b.n > 1 {
			latest += tat.Ticks(patience)
		}
		b.from = min(b.from, latest)
	}
}

// learn records the TAT of an answer, which may be to a call under another limit.
func (b *bucket) learn(known, now int64) {
	if b.charge.Periods == nil { // a quota's is ahead of the end of its period
		known = min(known, now+b.charge.Top)
	}
	b.known = known
	b.wait(known)
}

// refund takes ticks from the end of level, and returns how many of them are unreported, also those that are being
// reported and stay (invariant 5).
func (b *bucket) refund(ticks int64) int64 {
	ticks = min(ticks, b.level)
	b.level -= min(ticks, b.level-b.sent)
	return ticks
}

// report returns the report whose reply is missing, or a new one of all that is unreported.
func (b *bucket) report(hash uint64) Report {
	// A repetition has the id and the amount of the first, so that Redis charges one of them.
	if b.id == "" {
		b.id, b.sent = strconv.FormatUint(rand.Uint64(), 36), b.level
	}

	r := Report{Hash: hash, Key: b.key, ID: b.id, Amount: b.sent, Top: b.charge.Top}
	if b.charge.Periods != nil {
		period := b.charge.Periods.At(b.charge.Period - 1)
		r.Ends, r.Begins, r.Previous = period.End, period.Begin, period.Before
	}
	return r
}

// record records the reply to the report: how much was charged, and the TAT afterwards.
func (b *bucket) record(charged, known, now int64) {
	// Redis had no room for all. In less than T, it grants none of the room that comes.
	if charged < b.sent {
		b.next = now + b.charge.Emission/4
	}

	b.level -= min(charged, b.sent)
	b.id, b.sent = "", 0
	b.learn(known, now)
	b.bePatient(now)
}

// units is how many units some ticks are.
func (b *bucket) units(ticks int64) float64 { return float64(ticks) / float64(b.charge.Emission) }
