package redisstore

import (
	"sync/atomic"
	"time"
	"unique"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/outage"
)

// denialCache keeps the TATs of Redis as of its last answers. A request that these
// deny is denied without a call.
//
// Each TAT is kept by the local monotonic clock, as if Redis had read its own clock
// before the call. It did so later, so the true TAT is not earlier. A TAT only grows,
// except by refunds; hence Redis denies what the cache denies. A refund of this
// process clears its buckets in the cache before it is sent. Other causes of an
// earlier TAT (a refund or a lower limit elsewhere, a flush, a failover, a refund
// whose answer was lost) are noticed up to ttl late.
//
// It is bounded as a [gcra.Memory] is.
type denialCache struct {
	set    *buckets.Set
	clock  *buckets.Clock
	ttl    int64 // ticks for which an answer denies; 0 means not at all
	shards []shardState
	grants *outage.Grants
}

// shardState belongs to a shard of the set and is under its lock, except denied.
type shardState struct {
	refunds  int          // ops of refunds in flight
	refunded int64        // when the last refund was answered
	denied   atomic.Int64 // requests
	_        [40]byte     // fills the cache line
}

func newDenialCache(clock *buckets.Clock, ttl time.Duration, grants *outage.Grants) *denialCache {
	return &denialCache{
		set:    buckets.New(0, clock, true),
		clock:  clock,
		ttl:    tat.Ticks(ttl),
		shards: make([]shardState, buckets.MaxShards),
		grants: grants,
	}
}

// freshness says when a TAT was learned and how long the call took: the true TAT is
// later by that latency at most. 0 marks a TAT that is not an answer of Redis: a
// refund has cleared it, or the local store has changed it.
//
// The time is in milliseconds, up to 34 years, above 24 bits for the latency in
// microseconds, up to 16 s. Slower calls are not learned from.
type freshness int64

const (
	latencyBits = 24
	ticksInMs   = int64(time.Millisecond / tat.Tick)
	ticksInUs   = int64(time.Microsecond / tat.Tick)
)

func newFreshness(learned, latency int64) (f freshness, ok bool) {
	us := latency/ticksInUs + 1
	return freshness(learned/ticksInMs<<latencyBits | us), us < 1<<latencyBits
}

func (f freshness) learned() int64 { return int64(f) >> latencyBits * ticksInMs }
func (f freshness) latency() int64 { return int64(f) & (1<<latencyBits - 1) * ticksInUs }

// prepare checks a charge and converts it.
func (d *denialCache) prepare(charge *gcra.Charge, refund bool, o *buckets.Charge) error {
	limit := tat.Limit{Count: charge.Limit.Count, Per: charge.Limit.Per, Burst: charge.Limit.Burst}
	if charge.Limit.IsQuota() {
		c := charge.Limit.Calendar()
		limit.Calendar = unique.Make(tat.Calendar{Unit: c.Unit(), Location: c.Location(), Anchor: c.Anchor()})
	}
	return buckets.Prepare(d.set, (*tat.Charge[gcra.Limit, gcra.Result])(charge), limit, refund, o)
}

// deny reports whether Redis would deny the admission, and fills in the results if
// so. Buckets that the cache does not know count as full.
func (c *denialCache) deny(ops []op, charges []gcra.Charge) bool {
	unreported := c.grants.Any()
	if c.ttl == 0 && !unreported {
		return false
	}
	now := c.clock.Now()
	denied := false
	for i := range ops {
		o := &ops[i]
		shard := c.set.Shard(o.Hash)
		c.set.Lock(shard)
		at, note, known := c.set.Get(o.Hash)
		c.set.Unlock(shard)
		fresh := freshness(note)
		base := o.Base(c.clock, now)
		if known {
			o.Ahead, o.latency = o.Clamp(at, base), fresh.latency()
		}
		if o.Periods != nil { // what is left of the period may be longer
			o.latency = max(o.latency, c.clock.Ahead())
		}
		// An earlier op on the bucket moves the TAT. Shadows are left out, and late charges,
		// which take fewer units where others have charged: then the cache denies less than
		// Redis, never more.
		if j := before(ops, i); j >= 0 && !ops[j].Shadow && !ops[j].Late && ops[j].Admits(ops[j].Ahead) {
			o.Ahead = min(ops[j].After(ops[j].Ahead), o.Top)
		}
		// A TAT beyond the clamp, as after a change of limits, is for Redis to
		// bring down. If the cache denied, it would stay.
		if known && at-base <= o.Top && fresh != 0 && now-fresh.learned() <= c.ttl {
			denied = denied || !o.Shadow && !o.Admits(o.Ahead)
		}
		// What Redis does not know yet counts, however old its last answer is.
		if unreported {
			if ahead := c.grants.Ahead(&o.Charge, base, now); ahead > 0 {
				o.Ahead = max(o.Ahead, ahead)
				denied = denied || !o.Shadow && !o.Admits(ahead)
			}
		}
	}
	if !denied {
		return false
	}
	c.shards[c.set.Shard(ops[0].Hash)].denied.Add(1)
	setResults(charges, ops, false, false)
	for i := range charges {
		r, latency := &charges[i].Result, tat.Duration(ops[i].latency)
		r.Cached = true
		if r.RetryAfter > 0 {
			r.RetryAfter += latency
		}
		if r.ResetAfter > 0 {
			r.ResetAfter += latency
		}
	}
	return true
}

// beforeSend clears the buckets of a refund. Until it is answered, they may have more
// left than any answer says.
func (c *denialCache) beforeSend(q *request) {
	if !q.refund {
		return
	}
	for i := range q.ops {
		hash := q.ops[i].Hash
		shard := c.set.Shard(hash)
		c.set.Lock(shard)
		c.shards[shard].refunds++
		now := c.clock.Now()
		c.set.Put(hash, c.grants.Forget(hash, now), 0, now)
		c.set.Unlock(shard)
	}
}

// learn keeps the TATs that follow from the answer to a request. sent is the time
// before the call.
func (c *denialCache) learn(q *request, sent int64) {
	now := c.clock.Now()
	fresh, ok := newFreshness(now, now-sent)
	ok = ok && q.err == nil && !q.unfit
	for i := range q.ops {
		hash := q.ops[i].Hash
		shard := c.set.Shard(hash)
		c.set.Lock(shard)
		if state := &c.shards[shard]; q.refund {
			state.refunds--
			state.refunded = now
		} else if ok && state.refunds == 0 && sent >= state.refunded {
			if ahead, ok := q.aheadAfter(i); ok {
				base := sent
				if q.ops[i].Periods != nil {
					base = c.clock.OnScale(q.ops[i].Period)
				}
				at, note := base+ahead, int64(fresh)
				if with, unreported := c.grants.Learn(hash, at, now); unreported {
					before, _, _ := c.set.Get(hash)
					at, note = max(before, with), 0 // the local store has granted more than Redis knows
				}
				c.set.Put(hash, at, note, now)
			}
		}
		c.set.Unlock(shard)
	}
}

// record records the reply to a report: how much was charged, and the TAT afterwards. sent is the time before the call. It
// returns a refund, with an Inc below 0, if more was charged than is left since a refund.
func (c *denialCache) record(report *outage.Report, charged, at, sent int64) (refund buckets.Charge) {
	shard := c.set.Shard(report.Hash)
	c.set.Lock(shard)
	defer c.set.Unlock(shard)

	now := c.clock.Now()
	ended, refund := c.grants.Record(report, charged, at, now)
	fresh, ok := newFreshness(now, now-sent)
	if state := &c.shards[shard]; ended && ok && refund.Inc == 0 && state.refunds == 0 && sent >= state.refunded {
		c.set.Put(report.Hash, at, int64(fresh), now)
	}
	return refund
}

// aheadAfter is how far the TAT of op i is ahead of now after the request. It is
// unknown for an op of a denied request that follows another on its bucket: the
// answer is what the earlier op would have made.
func (q *request) aheadAfter(i int) (ahead int64, ok bool) {
	o := &q.ops[i]
	if q.taken(o) {
		return o.After(o.Ahead), true
	}
	return o.Ahead, before(q.ops, i) < 0
}

// count is the number of requests that were denied.
func (c *denialCache) count() (n int64) {
	for i := range c.shards {
		n += c.shards[i].denied.Load()
	}
	return n
}
