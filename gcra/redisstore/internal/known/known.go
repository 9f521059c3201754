// Package known keeps what Redis has said about buckets. Together with what Redis was not told (package outage), that is
// what a server knows: a request that Redis would deny is denied without a call, and the local store goes on from there.
package known

import (
	"time"
	"unique"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/outage"
)

// A Cache keeps the TATs of Redis as of its last answers. It is bounded as a [gcra.Memory] is.
//
//  1. Each TAT that is an answer is kept by the local monotonic clock, as if Redis had read its own clock before the call.
//     Redis read it later, so the true TAT is the same or later.
//  2. A TAT only grows, except by refunds. Hence Redis denies what the cache denies.
//  3. A refund of this process clears its buckets before it is sent. Until all refunds of a shard are answered, and from
//     calls that were sent before, nothing is learned there.
//  4. Other causes of an earlier TAT (a refund or a lower limit elsewhere, a flush, a failover, a refund whose answer was
//     lost) are noticed up to the TTL late.
//  5. Learn and the refunds change the TAT and the grants of a bucket together, under the lock of its shard. Deny
//     reads the TAT and then the grants, and may see one before a change and the other after it: each alone is a reason to deny.
//     When the grants end, as they are reported, the TAT that has them stays for the local store until the next answer.
type Cache struct {
	set    *buckets.Set
	clock  *buckets.Clock
	ttl    int64 // ticks for which an answer denies; 0 means not at all
	shards []shard
	grants *outage.Grants
}

// A shard is what is kept beside the shard of the set with the same index, under the lock of that one.
type shard struct {
	refunds  int      // charges of refunds in flight
	refunded int64    // when the last refund was answered
	_        [48]byte // fills the cache line
}

// learns reports whether answers to a call that was sent then are learned, see invariant 3.
func (s *shard) learns(sent int64) bool { return s.refunds == 0 && sent >= s.refunded }

// New returns a cache whose answers deny for ttl.
func New(clock *buckets.Clock, ttl time.Duration, grants *outage.Grants) *Cache {
	return &Cache{
		set:    buckets.New(0, clock, true),
		clock:  clock,
		ttl:    tat.Ticks(ttl),
		shards: make([]shard, buckets.MaxShards),
		grants: grants,
	}
}

// freshness says when a TAT was learned and how long the call took: the true TAT is later than the kept one by at most that. 0 marks
// a TAT that is not an answer of Redis: a refund has cleared it, or the local store has changed it.
//
// The time is in milliseconds, up to 17 years, above 24 bits for the latency in microseconds, up to 16 s.
type freshness int64

const (
	latencyBits = 24
	ticksInMs   = int64(time.Millisecond / tat.Tick)
	ticksInUs   = int64(time.Microsecond / tat.Tick)
)

func newFreshness(learned, latency int64) freshness {
	us := min(latency/ticksInUs+1, 1<<latencyBits-1)
	return freshness(learned/ticksInMs<<latencyBits | us)
}

func (f freshness) learned() int64 { return int64(f) >> latencyBits * ticksInMs }
func (f freshness) latency() int64 { return int64(f) & (1<<latencyBits - 1) * ticksInUs }

// Prepare checks a charge, or a refund, and converts it.
func (c *Cache) Prepare(charge *gcra.Charge, refund bool, to *buckets.Charge) error {
	limit := tat.Limit{Count: charge.Limit.Count, Per: charge.Limit.Per, Burst: charge.Limit.Burst}
	if charge.Limit.IsQuota() {
		limit.Calendar = unique.Make(tat.Calendar(charge.Limit.Calendar()))
	}
	return buckets.Prepare(c.set, (*tat.Charge[gcra.Limit, gcra.Result])(charge), limit, refund, to)
}

// Apply decides about an admission of the local store.
func (c *Cache) Apply(ops []buckets.Op) (admitted bool) { return c.set.Apply(ops) }

// Deny reports whether Redis would deny the admission, and fills in the results of the charges if so. Buckets that are not
// known count as full: Ahead of their charges is 0 before.
func (c *Cache) Deny(admission []buckets.Charge, charges []gcra.Charge) bool {
	unreported := c.grants.Any()
	if c.ttl == 0 && !unreported {
		return false
	}

	now, latency, denied := c.clock.Now(), int64(0), false
	for i := range admission {
		b := &admission[i]
		shard := c.set.Shard(b.Hash)
		c.set.Lock(shard)
		at, note, known := c.set.Get(b.Hash)
		c.set.Unlock(shard)

		fresh, base := freshness(note), b.Base(c.clock, now)
		if known {
			b.Ahead, latency = b.Clamp(at, base), max(latency, fresh.latency())
		}
		if b.Periods != nil { // by the server's clock, which may be behind, more of the period is left
			latency = max(latency, c.clock.Ahead())
		}

		// An earlier charge of the bucket moves the TAT. Shadows are left out, and late charges, which take fewer units
		// where others have charged: then the cache denies less than Redis, never more.
		if j := before(admission, i); j >= 0 {
			if e := &admission[j]; !e.Shadow && !e.Late && e.Admits(e.Ahead) {
				b.Ahead = min(e.After(e.Ahead), b.Top)
			}
		}

		// A TAT beyond the clamp, as after a change of limits, is for Redis to bring down. If the cache denied, no call would do that.
		if known && at-base <= b.Top && fresh != 0 && now-fresh.learned() <= c.ttl {
			denied = denied || denies(b, b.Ahead)
		}

		// What Redis does not know yet counts, however old its last answer is.
		if unreported {
			if ahead := c.grants.Ahead(b, base, now); ahead > 0 {
				b.Ahead = max(b.Ahead, ahead)
				denied = denied || denies(b, ahead)
			}
		}
	}
	if !denied {
		return false
	}

	for i := range charges {
		SetResult(&charges[i], &admission[i], false, false)
		r := &charges[i].Result
		r.Cached = true
		if r.RetryAfter > 0 {
			r.RetryAfter += tat.Duration(latency)
		}
		if r.ResetAfter > 0 {
			r.ResetAfter += tat.Duration(latency)
		}
	}
	return true
}

func denies(b *buckets.Charge, ahead int64) bool { return !b.Shadow && !b.Admits(ahead) }

// before returns the nearest earlier charge of the same bucket, or -1.
func before(admission []buckets.Charge, i int) int {
	for j := i - 1; j >= 0; j-- {
		if admission[j].Hash == admission[i].Hash {
			return j
		}
	}
	return -1
}

// SetResult fills in what Take and Refund say of a charge.
func SetResult(charge *gcra.Charge, c *buckets.Charge, admitted, refund bool) {
	c.Result(admitted, refund, (*tat.Result)(&charge.Result), &charge.Period)
}

// RefundSent clears the buckets of a refund before it is sent. Until it is answered, they may have more left than any
// answer says. RefundAnswered must follow.
func (c *Cache) RefundSent(refund []buckets.Charge) {
	for i := range refund {
		hash := refund[i].Hash
		shard := c.set.Shard(hash)
		c.set.Lock(shard)
		c.shards[shard].refunds++
		now := c.clock.Now()
		// Not removed: what is unreported goes on to deny.
		c.set.Put(hash, c.grants.Forget(hash, now), 0, now)
		c.set.Unlock(shard)
	}
}

// RefundAnswered notes that a refund was answered, if only with an error.
func (c *Cache) RefundAnswered(refund []buckets.Charge) {
	now := c.clock.Now()
	for i := range refund {
		shard := c.set.Shard(refund[i].Hash)
		c.set.Lock(shard)
		c.shards[shard].refunds--
		c.shards[shard].refunded = max(c.shards[shard].refunded, now) // a later answer may have been faster
		c.set.Unlock(shard)
	}
}

// Learn keeps the TATs that follow from the answer to an admission. sent is the time before the call, now that after it.
func (c *Cache) Learn(admission []buckets.Charge, admitted bool, sent, now int64) {
	fresh := newFreshness(now, now-sent)
	for i := range admission {
		b := &admission[i]
		// By the time before the call: the true TAT is no earlier (invariant 1).
		at := sent + b.Ahead
		switch {
		case admitted && b.Admits(b.Ahead):
			at = sent + b.After(b.Ahead)
		case before(admission, i) >= 0:
			continue // its Ahead contains the earlier charge of the bucket, which was not taken or is learned with it
		}
		if b.Periods != nil {
			at += c.clock.OnScale(b.Period) - sent
		}

		shard := c.set.Shard(b.Hash)
		c.set.Lock(shard)
		if c.shards[shard].learns(sent) {
			c.put(b.Hash, at, fresh, now)
		}
		c.set.Unlock(shard)
	}
}

// put keeps a TAT of Redis, under the lock of its shard.
func (c *Cache) put(hash uint64, at int64, fresh freshness, now int64) {
	if with, unreported := c.grants.Learn(hash, at, now); unreported {
		kept, _, _ := c.set.Get(hash)
		at, fresh = max(kept, with), 0 // the local store has granted more than Redis knows
	}
	c.set.Put(hash, at, int64(fresh), now)
}
