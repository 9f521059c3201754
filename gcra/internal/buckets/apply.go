package buckets

import (
	"math/bits"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A Charge is a charge of package gcra, checked and converted.
type Charge struct {
	tat.Params
	Hash   uint64 // of the bucket
	Shadow bool
	Ahead  int64 // filled in: how far the TAT was ahead of now when the charge's turn came
}

// An Op is a charge on its way through a set.
type Op struct {
	Charge
	Policy string // names the overflow bucket

	shard int
	first int // the first op on the same bucket, perhaps this one; the fields below are filled in there
	pending
}

// pending is the state of a bucket while an admission is decided.
type pending struct {
	held bool  // the TAT is locked in the table; without an entry the bucket is full
	tat  int64 // to put back if the admission is denied
	next int64 // to put there if it is admitted
}

// Result describes, in r, the bucket after an admission that was admitted or not.
func (c *Charge) Result(admitted bool, r *tat.Result) {
	c.Params.Result(c.Ahead, admitted && c.Admits(c.Ahead), r)
}

// Apply decides about an admission: all ops are taken or none is.
func (s *Set) Apply(ops []Op) (admitted bool) {
	var shards uint64 // to lock
	for i := range ops {
		ops[i].shard = s.Shard(ops[i].Hash)
		shards |= 1 << ops[i].shard
	}
	s.lock(shards)
	now := s.clock.Now()
	overflows := s.resolve(ops, now)
	if beyondClamp(ops, now) {
		now = max(now, s.clock.Now()) // perhaps only because others have charged, without a lock, since it was read
	}
	admitted = evaluate(ops, now)
	s.commit(ops, admitted)
	if overflows {
		s.overflow().Unlock()
	}
	s.unlock(shards)
	return admitted
}

func (s *Set) overflow() *shard { return &s.shards[len(s.shards)-1] }

// resolve locks the TATs of all buckets, and locks the overflow shard and
// reports true if one of them is there. A charge needs an entry, which it gets
// in the overflow shard if there is no room elsewhere.
func (s *Set) resolve(ops []Op, now int64) (overflows bool) {
	for i := range ops {
		o := &ops[i]
		s.shards[o.shard].follow(now)
		o.first = firstOn(ops[:i+1])
		if s.hold(ops, o, now) || !o.Takes() {
			continue
		}
		if !overflows {
			overflows = true
			s.overflow().Lock()
		}
		o.shard, o.Hash = len(s.shards)-1, s.hash("", o.Policy)
		o.first = firstOn(ops[:i+1])
		s.hold(ops, o, now)
	}
	return overflows
}

// hold locks the TAT of the op's bucket, unless that has been done, and reports
// whether there is one.
func (s *Set) hold(ops []Op, o *Op, now int64) bool {
	p := &ops[o.first].pending
	switch t := &s.shards[o.shard].table; {
	case p.held:
	case o.Takes():
		p.tat, p.held = t.add(o.Hash, now)
	default:
		p.tat, p.held = t.lock(o.Hash)
	}
	if !p.held {
		p.tat = now // full
	}
	p.next = p.tat
	return p.held
}

// firstOn is the index of the first op on the same bucket as the last.
func firstOn(ops []Op) int {
	last := &ops[len(ops)-1]
	for i := range ops {
		if ops[i].Hash == last.Hash && ops[i].shard == last.shard {
			return i
		}
	}
	return -1 // not reached: the last is one of them
}

// beyondClamp reports whether a TAT is later than its limit can have made it.
func beyondClamp(ops []Op, now int64) bool {
	for i := range ops {
		if o := &ops[i]; ops[o.first].tat-now > o.Top {
			return true
		}
	}
	return false
}

// evaluate decides, and leaves in each pending state what is to be put back. A
// bucket that has several ops is charged by each in turn.
func evaluate(ops []Op, now int64) (admitted bool) {
	admitted = true
	for i := range ops {
		o := &ops[i]
		p := &ops[o.first].pending
		o.Ahead = o.Clamp(p.next, now)
		if o.Takes() {
			// This limit cannot have made a later TAT, and unless it is brought
			// down it denies until now comes near it.
			p.tat, p.next = min(p.tat, now+o.Top), min(p.next, now+o.Top)
		}
		if o.Admits(o.Ahead) {
			if o.Inc != 0 {
				p.next = now + o.After(o.Ahead)
			}
		} else if !o.Shadow {
			admitted = false
		}
	}
	return admitted
}

// commit unlocks the TATs.
func (s *Set) commit(ops []Op, admitted bool) {
	for i := range ops {
		o := &ops[i]
		if !o.held {
			continue
		}
		to := o.tat
		if admitted {
			to = o.next
		}
		s.shards[o.shard].set(o.Hash, to, 0)
	}
}

// lock locks a set of shards, always in the same order.
func (s *Set) lock(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].Lock()
	}
}

func (s *Set) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].Unlock()
	}
}
