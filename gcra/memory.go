package gcra

import (
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Memory is a [Store] in this process. The zero value is ready to use.
//
// It holds at most Capacity keys and never allocates beyond that (32 to 96
// bytes a key, about 48 as a rule), keeps no goroutine and needs no Close. A
// key whose bucket is full again equals a key that was never seen, so its
// place is given to the next newcomer and nothing is lost. When no place is
// found among keys that are still in debt, newcomers share one bucket for each
// policy: the flood that filled the table stays limited, and so does what comes
// after it, without turning everybody away.
//
// Keys are kept as 64-bit hashes under a random seed: two given keys share a
// bucket with a probability of 2^-64, and nobody can look for such a pair.
type Memory struct {
	// Capacity is the most keys held; 0 means 1 << 20. Set it before first use.
	Capacity int

	// Now is the clock; nil means the time that has passed since first use,
	// which setting the wall clock does not disturb. Set it before first use.
	Now func() time.Time

	once     sync.Once
	seed     maphash.Seed
	start    time.Time
	shards   []shard // a power of two, 64 at most: a set of them fits a uint64
	shift    uint    // hash >> shift is the shard
	overflow shard   // one bucket a policy, for keys that found no place
}

// NewMemory returns an empty Memory of the default capacity.
func NewMemory() *Memory { return new(Memory) }

const (
	defaultCapacity = 1 << 20
	maxShards       = 64
	minShardKeys    = 1024 // below this many keys a shard, chance would fill one long before the others
)

func (m *Memory) init() {
	capacity := m.Capacity
	if capacity <= 0 {
		capacity = defaultCapacity
	}
	n := 1
	for n < maxShards && capacity/(2*n) >= minShardKeys {
		n *= 2
	}
	m.seed = maphash.MakeSeed()
	m.start = time.Now()
	m.shift = uint(64 - bits.TrailingZeros(uint(n)))
	m.shards = make([]shard, n)
	for i := range m.shards {
		m.shards[i].limit = capacity / n
	}
	m.overflow.limit = math.MaxInt // policies are named by the program, not by its clients
}

// shard is a part of the keys under a lock of its own, on cache lines of its
// own.
type shard struct {
	sync.Mutex
	table
	refunds  int          // the mirror's: how many refunds are under way
	refunded int64        // the mirror's: when one came back last
	refused  atomic.Int64 // the mirror's: how often it has refused
	_        [64]byte
}

// now is the time in ticks.
func (m *Memory) now() int64 {
	if m.Now != nil {
		return ticksOf(m.Now())
	}
	return int64(time.Since(m.start)) / tick
}

// Take implements [Store]. It allocates nothing on keys it knows.
func (m *Memory) Take(ctx context.Context, charges []Charge) error {
	return m.apply(ctx, charges, false)
}

// Refund implements [Store]. What was taken from a shared bucket, for want of
// a place, is not given back.
func (m *Memory) Refund(ctx context.Context, charges []Charge) error {
	return m.apply(ctx, charges, true)
}

// claim is a charge on its way through apply.
type claim struct {
	demand
	hash  uint64
	shard *shard
	ahead int64
	held  bool // the entry is there only for this claim
}

func (m *Memory) apply(ctx context.Context, charges []Charge, refund bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.once.Do(m.init)
	if len(charges) == 1 {
		if done, err := m.alone(&charges[0], refund); done {
			return err
		}
	}

	var few [4]claim
	claims := few[:]
	if len(charges) > len(few) {
		claims = make([]claim, len(charges))
	}
	claims = claims[:len(charges)]
	var needed uint64 // the shards to lock
	for i := range charges {
		d, err := charges[i].demand(refund)
		if err != nil {
			return err
		}
		h := m.hash(charges[i].Subject, charges[i].Policy)
		claims[i].demand, claims[i].hash, claims[i].shard = d, h, &m.shards[h>>m.shift]
		needed |= 1 << (h >> m.shift)
	}

	m.lock(needed)
	overflowing := false
	now := m.now()
	admitted := true
	for i := range claims {
		c := &claims[i]
		takes := c.takes()
		tat := now
		s := c.shard.find(c.hash)
		if takes && (s == nil || s.tat <= now) {
			c.held = true
			if s = c.shard.hold(c.hash, now); s == nil {
				if !overflowing {
					overflowing = true
					m.overflow.Lock()
				}
				c.shard, c.hash = &m.overflow, m.hash("", charges[i].Policy)
				s = m.overflow.find(c.hash)
				c.held = s == nil || s.tat <= now
				s = m.overflow.hold(c.hash, now)
			}
		}
		if s != nil && !c.held {
			tat = s.tat
		}
		if takes && tat-now > c.top {
			// No such TAT can have been made by this limit, and unless it is
			// brought down it refuses until now comes near.
			tat = now + c.top
			s.tat = tat
		}
		for j := range i { // a key that occurs twice is charged twice
			if e := &claims[j]; e.hash == c.hash && e.shard == c.shard && e.inc != 0 && e.admits(e.ahead) {
				tat = now + e.take(e.ahead)
			}
		}
		c.ahead = c.clamp(tat, now)
		if !c.admits(c.ahead) && !charges[i].Shadow {
			admitted = false
		}
	}
	for i := range claims {
		c := &claims[i]
		taken := admitted && c.admits(c.ahead)
		if taken && c.inc != 0 {
			c.shard.set(c.hash, now+c.take(c.ahead), 0)
		} else if c.held {
			c.shard.set(c.hash, now, 0)
		}
		charges[i].Result = c.result(c.ahead, taken)
	}
	if overflowing {
		m.overflow.Unlock()
	}
	m.unlock(needed)
	return nil
}

// alone decides about a charge that is an admission of its own, if its key is
// known: the common case, in which nothing has to be held back until the
// others are known. Only what must be is done under the lock.
func (m *Memory) alone(c *Charge, refund bool) (done bool, err error) {
	d, err := c.demand(refund)
	if err != nil {
		return true, err
	}
	h := m.hash(c.Subject, c.Policy)
	s := &m.shards[h>>m.shift]
	now := m.now()
	s.Lock()
	e := s.find(h)
	if e == nil {
		s.Unlock()
		return false, nil
	}
	if e.tat-now > d.top && d.takes() {
		// Perhaps only because others have been here since now was read.
		now = m.now()
		e.tat = min(e.tat, now+d.top)
	}
	ahead := d.clamp(e.tat, now)
	taken := d.admits(ahead)
	if taken && d.inc != 0 {
		e.tat = now + d.take(ahead)
	}
	s.Unlock()
	c.Result = d.result(ahead, taken)
	return true, nil
}

func (m *Memory) hash(subject, policy string) uint64 {
	h := maphash.String(m.seed, subject) ^ maphash.String(m.seed, policy)*0x9e3779b97f4a7c15
	if h == 0 {
		h = 1 // 0 marks an empty slot
	}
	return h
}

// lock takes the locks of a set of shards, always in the same order.
func (m *Memory) lock(set uint64) {
	for ; set != 0; set &= set - 1 {
		m.shards[bits.TrailingZeros64(set)].Lock()
	}
}

func (m *Memory) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		m.shards[bits.TrailingZeros64(set)].Unlock()
	}
}
