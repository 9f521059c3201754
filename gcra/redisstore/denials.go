package redisstore

import (
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// denialCache keeps, in this process, how far ahead of now the TATs of Redis
// were when it last answered. A request that is denied by these is denied without
// a call.
//
// Each TAT is kept on the local monotonic clock, measured from before the call:
// Redis read its clock later, so the true TAT is not earlier. A TAT only grows,
// except by refunds; hence Redis denies what the cache denies. A refund by this
// process clears its buckets before it is sent; what else brings a TAT down (a
// refund or a lower limit elsewhere, a flush, a failover, a refund whose answer
// was lost) is noticed up to ttl late.
//
// It is bounded as a [gcra.Memory] is.
type denialCache struct {
	set    *buckets.Set
	clock  *buckets.Clock
	ttl    int64 // ticks for which an answer is used; 0: not at all
	shards []shardState
}

// shardState belongs to a shard of the set and is under its lock, except denied.
type shardState struct {
	refunds  int          // in flight
	refunded int64        // when the last refund was answered
	denied   atomic.Int64 // requests
	_        [40]byte     // on a cache line of its own
}

func newDenialCache(clock *buckets.Clock, ttl time.Duration) *denialCache {
	return &denialCache{
		set:    buckets.New(0, clock, true),
		clock:  clock,
		ttl:    tat.Ticks(ttl),
		shards: make([]shardState, buckets.MaxShards),
	}
}

// freshness says when a TAT was learned and how long the call took. The true TAT
// is later by the latter at most. 0 goes with a TAT that Redis has not told.
//
// It holds milliseconds (34 years of them) above 24 bits of microseconds (16 s;
// slower calls are not learned from).
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
func (c *denialCache) prepare(charge *gcra.Charge, refund bool, o *buckets.Charge) error {
	return c.set.Prepare(&tat.Charge{
		Subject: charge.Subject, Policy: charge.Policy, Limit: tat.Limit(charge.Limit),
		Cost: charge.Cost, MaxDelay: charge.MaxDelay, MaxWait: charge.MaxWait, Shadow: charge.Shadow,
	}, refund, o)
}

// deny reports whether Redis would deny the admission, and then fills in the
// results. Buckets that the cache does not know count as full.
func (c *denialCache) deny(ops []op, charges []gcra.Charge) bool {
	if c.ttl == 0 {
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
		if known {
			o.Ahead, o.latency = o.Clamp(at, now), fresh.latency()
		}
		if j := before(ops, i); j >= 0 && !ops[j].Shadow && ops[j].Admits(ops[j].Ahead) {
			o.Ahead = min(ops[j].After(ops[j].Ahead), o.Top)
		}
		// Beyond the clamp, as after a change of limits, Redis has to bring the
		// TAT down: denied here, the bucket would stay as it is.
		if known && at-now <= o.Top && fresh != 0 && now-fresh.learned() <= c.ttl {
			denied = denied || !o.Shadow && !o.Admits(o.Ahead)
		}
	}
	if !denied {
		return false
	}
	c.shards[c.set.Shard(ops[0].Hash)].denied.Add(1)
	setResults(charges, ops, false)
	for i := range charges {
		r, latency := &charges[i].Result, tat.Duration(ops[i].latency)
		if r.RetryAfter > 0 {
			r.RetryAfter += latency
		}
		if r.ResetAfter > 0 {
			r.ResetAfter += latency
		}
	}
	return true
}

// beforeSend clears the buckets of a refund that is about to be sent: until it is
// answered they may be fuller than any answer says.
func (c *denialCache) beforeSend(q *request) {
	if !q.refund {
		return
	}
	for i := range q.ops {
		hash := q.ops[i].Hash
		shard := c.set.Shard(hash)
		c.set.Lock(shard)
		c.shards[shard].refunds++
		c.set.Put(hash, 0, 0, 0)
		c.set.Unlock(shard)
	}
}

// learn keeps what the answer to a request tells. sent is the time before the
// call.
func (c *denialCache) learn(q *request, sent int64) {
	now := c.clock.Now()
	fresh, ok := newFreshness(now, now-sent)
	ok = ok && q.err == nil
	for i := range q.ops {
		hash := q.ops[i].Hash
		shard := c.set.Shard(hash)
		c.set.Lock(shard)
		if state := &c.shards[shard]; q.refund {
			state.refunds--
			state.refunded = now
		} else if ok && state.refunds == 0 && sent >= state.refunded {
			if ahead, told := q.told(i); told {
				c.set.Put(hash, sent+ahead, int64(fresh), now)
			}
		}
		c.set.Unlock(shard)
	}
}

// told is how far ahead of now the answer says that the TAT of op i is. The
// answer to a denied op that follows another on its bucket does not say so: it
// tells what the other would have made of the bucket.
func (q *request) told(i int) (ahead int64, told bool) {
	o := &q.ops[i]
	if q.taken(o) {
		return o.After(o.Ahead), true
	}
	return o.Ahead, before(q.ops, i) < 0
}

// count is how many requests have been denied.
func (c *denialCache) count() (n int64) {
	for i := range c.shards {
		n += c.shards[i].denied.Load()
	}
	return n
}
