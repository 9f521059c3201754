package buckets

import (
	"math/bits"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A Charge is a charge of package gcra, checked and converted.
type Charge struct {
	tat.Params
	Hash   uint64 // of the bucket
	shared uint64 // hash of the overflow bucket: of the policy and the limit
	Shadow bool
	Ahead  int64 // filled in: how far the TAT was ahead of now when the charge's turn came

	// For a quota, in ticks since tat.Epoch. The end of the period takes the place of
	// now.
	Periods *tat.Periods // nil for a rate
	Refunds int64        // of a refund: the end of the period to refund in; 0 for the current one
	Period  int64        // filled in: the end of the period that is charged
	Left    int64        // filled in: ticks until then
}

// An Op is a charge on its way through a set.
type Op struct {
	Charge
	base    int64 // now, or the end of a quota's period
	shard   int
	first   int     // index of the first op on the same bucket, perhaps this one
	pending pending // of the bucket; used in the first op only
}

// pending is the state of a bucket while an admission is decided.
type pending struct {
	held bool  // the bucket has an entry, and its TAT is locked; without an entry it is unused
	tat  int64 // the TAT if the admission is denied
	next int64 // the TAT if it is admitted
}

// Result describes, in r, the charge's bucket after the admission, and sets the period that was charged.
func (c *Charge) Result(admitted, refund bool, r *tat.Result, period *time.Time) {
	c.Params.Result(c.Ahead, admitted && c.Admits(c.Ahead), r)
	if c.Periods == nil {
		return
	}
	r.ResetAfter = tat.Duration(c.Left)
	if !r.Allowed && !r.Never {
		r.RetryAfter = r.ResetAfter
	}
	if !refund {
		*period = tat.Time(c.Period)
	}
}

// Undo makes a charge that was taken a refund of some ticks, in the period that it was
// charged in.
func (c *Charge) Undo(ticks int64) {
	c.Inc, c.Late, c.Ahead, c.Refunds = -ticks, false, 0, c.Period
	if c.Periods == nil {
		c.KeepTATs()
	}
}

// Base returns what takes the place of now in the step: now itself for a rate, the end
// of the current period for a quota.
func (c *Charge) Base(clock *Clock, now int64) int64 {
	if c.Periods == nil {
		return now
	}
	return c.baseOf(clock, now, clock.Calendar(now), unused)
}

// baseOf is Base for a TAT: one beyond the clamp may be of the next period, which has begun then
// (rule 2 of tat.Period).
func (c *Charge) baseOf(clock *Clock, now, calendar, tat int64) int64 {
	if c.Periods == nil {
		return now
	}
	used := tat - clock.OnScale(c.Periods.At(calendar).Next)
	c.SetPeriod(calendar, used >= 0 && used <= c.Top)
	return clock.OnScale(c.Period)
}

// SetPeriod sets the period: the one of a time in ticks since tat.Epoch, or the next one.
func (c *Charge) SetPeriod(now int64, next bool) {
	p := c.Periods.At(now)
	if c.Period = p.End; next {
		c.Period = p.Next
	}
	c.Left = c.Period - now
}

// dropOver makes a refund in another period than the current one a peek (rule 4 of tat.Period).
func (c *Charge) dropOver() {
	if c.Refunds != 0 && c.Refunds != c.Period {
		c.Inc = 0
	}
}

// step is the charge's turn on a bucket: it sets Ahead, and returns the TAT that follows if
// the admission is allowed.
func (c *Charge) step(tat, base int64) (next int64) {
	c.dropOver()
	c.Ahead = c.Clamp(tat, base)
	switch added := c.Fits(c.Ahead); {
	case added != 0 && c.Admits(c.Ahead):
		return base + max(c.Ahead+added, 0)
	case c.Lowers(): // rule 2 of tat.Params
		return min(tat, base+c.Top)
	}
	return tat
}

// Apply decides about an admission: all ops are taken or none is.
func (s *Set) Apply(ops []Op) (admitted bool) {
	var shards uint64 // to lock
	for i := range ops {
		ops[i].shard = s.Shard(ops[i].Hash)
		shards |= 1 << ops[i].shard
	}
	s.lockAll(shards)

	now := s.clock.Now()
	overflows := s.lockTATs(ops, s.clock.lapsed(now, s.clock.Calendar(now)))

	// Read again: rule 3 of Set. One time for all: rule 5 of tat.Period.
	now = s.clock.Now()
	calendar := s.clock.Calendar(now)
	for i := range ops {
		o := &ops[i]
		o.base = o.baseOf(s.clock, now, calendar, ops[o.first].pending.tat)
	}

	admitted = evaluate(ops)
	s.commit(ops, admitted)

	if overflows {
		s.overflow().Unlock()
	}
	s.unlockAll(shards)
	return admitted
}

func (s *Set) overflow() *shard { return &s.shards[len(s.shards)-1] }

// lockTATs locks the TATs of all buckets. A charge needs an entry: without room for
// one, it goes to the overflow bucket of its policy and limit. Then lockTATs also locks the
// overflow shard (rule 1 of Set) and reports true. Entries before lapsed make room.
func (s *Set) lockTATs(ops []Op, lapsed int64) (overflows bool) {
	for i := range ops {
		o := &ops[i]
		o.first = firstOn(ops[:i+1])

		if s.lockTAT(ops, o, lapsed) || !o.Takes() {
			continue
		}

		if !overflows {
			overflows = true
			s.overflow().Lock()
		}

		if o.Late { // rule 4 of Set
			o.Room = min(o.Room, o.Capacity)
		}
		o.shard, o.Hash = len(s.shards)-1, s.bucketHash("", o.shared)
		o.first = firstOn(ops[:i+1])
		s.lockTAT(ops, o, lapsed)
	}
	return overflows
}

// lockTAT locks the TAT of the op's bucket, unless an earlier op has, and reports
// whether the bucket has an entry.
func (s *Set) lockTAT(ops []Op, o *Op, lapsed int64) bool {
	p := &ops[o.first].pending
	switch t := &s.shards[o.shard].table; {
	case p.held:
	case o.Takes():
		p.tat, p.held = t.add(o.Hash, lapsed)
	default:
		p.tat, p.held = t.lock(o.Hash)
	}
	p.next = p.tat
	return p.held
}

// firstOn is the index of the first op on the same bucket as the last.
func firstOn(ops []Op) (i int) {
	last := &ops[len(ops)-1]
	for ops[i].Hash != last.Hash || ops[i].shard != last.shard {
		i++
	}
	return i
}

// evaluate decides, and computes both TATs of each pending state. A bucket that
// has several ops is charged by each in turn.
func evaluate(ops []Op) (admitted bool) {
	admitted = true
	for i := range ops {
		o := &ops[i]
		p := &ops[o.first].pending
		p.next = o.step(p.next, o.base)
		if o.Lowers() { // also if the admission is denied: rule 2 of tat.Params
			p.tat = min(p.tat, o.base+o.Top)
		}
		admitted = admitted && (o.Shadow || o.Admits(o.Ahead))
	}
	return admitted
}

// commit stores the TATs, which unlocks them (rule 2 of Set).
func (s *Set) commit(ops []Op, admitted bool) {
	for i := range ops {
		o := &ops[i]
		// The first op on a bucket has the outcome of all of them.
		if !o.pending.held {
			continue
		}
		to := o.pending.tat
		if admitted {
			to = o.pending.next
		}
		s.shards[o.shard].set(o.Hash, to, 0)
	}
}

// lockAll locks a set of shards: see rule 1 of Set.
func (s *Set) lockAll(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].Lock()
	}
}

func (s *Set) unlockAll(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].Unlock()
	}
}
