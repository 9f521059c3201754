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

	locking  bool // the mirror's: no charge does without a lock, which guards its notes
	once     sync.Once
	seed     maphash.Seed
	memo     memo
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
func (m *Memory) Take(ctx context.Context, charges []Charge) (allowed bool, err error) {
	if err := m.apply(ctx, charges, false); err != nil {
		return false, err
	}
	return admitted(charges), nil
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
	first int // the first claim on the same bucket, perhaps itself, which has

	held bool  // the TAT out of the table,
	tat  int64 // what goes back there when the admission is refused,
	next int64 // and when it passes, as far as the claims have been looked at
}

func (m *Memory) apply(ctx context.Context, charges []Charge, refund bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.once.Do(m.init)
	if len(charges) == 1 && !m.locking {
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
		h, err := m.demand(&charges[i], refund, &claims[i].demand)
		if err != nil {
			return err
		}
		claims[i].hash, claims[i].shard = h, &m.shards[h>>m.shift]
		needed |= 1 << (h >> m.shift)
	}

	m.lock(needed)
	overflowing := false
	now := m.now()
	admitted := true
	for i := range claims {
		c := &claims[i]
		c.first = first(claims[:i+1])
		if !claims[c.first].hold(now, c.takes()) {
			if !overflowing {
				overflowing = true
				m.overflow.Lock()
			}
			c.shard, c.hash = &m.overflow, m.hash("", charges[i].Policy)
			c.first = first(claims[:i+1])
			claims[c.first].hold(now, true)
		}
		f := &claims[c.first] // a key that occurs twice is charged twice
		if f.next-now > c.top {
			now = m.now() // perhaps only because others, without a lock, have been here since it was read
		}
		c.ahead = c.clamp(f.next, now)
		if c.takes() {
			// No later TAT can have been made by this limit, and unless it is
			// brought down it refuses until now comes near.
			f.tat, f.next = min(f.tat, now+c.top), min(f.next, now+c.top)
		}
		switch {
		case c.admits(c.ahead):
			if c.inc != 0 {
				f.next = now + c.take(c.ahead)
			}
		case !charges[i].Shadow:
			admitted = false
		}
	}
	for i := range claims {
		c := &claims[i]
		c.result(c.ahead, admitted && c.admits(c.ahead), &charges[i].Result)
		if c.held && admitted {
			c.shard.set(c.hash, c.next, 0)
		} else if c.held {
			c.shard.set(c.hash, c.tat, 0)
		}
	}
	if overflowing {
		m.overflow.Unlock()
	}
	m.unlock(needed)
	return nil
}

// hold takes the TAT of the claim's bucket out of the table, if it is not out
// already. It reports false when the bucket must have an entry and there is no
// place for one.
func (c *claim) hold(now int64, must bool) (ok bool) {
	switch {
	case c.held:
		return true
	case must:
		c.tat, c.held = c.shard.hold(c.hash, now)
	default:
		c.tat, c.held = c.shard.take(c.hash)
	}
	if !c.held {
		c.tat = now
	}
	c.next = c.tat
	return c.held || !must
}

// first is the index of the first claim on the same bucket as the last.
func first(claims []claim) int {
	last := &claims[len(claims)-1]
	for i := range claims {
		if claims[i].hash == last.hash && claims[i].shard == last.shard {
			return i
		}
	}
	return -1 // not reached: the last is one of them
}

// alone decides about a charge that is an admission of its own, if its key is
// known: the common case, in which nothing has to be held back until the
// others are known, and which takes no lock.
func (m *Memory) alone(c *Charge, refund bool) (done bool, err error) {
	var d demand
	h, err := m.demand(c, refund, &d)
	if err != nil {
		return true, err
	}
	s := m.shards[h>>m.shift].find(h)
	if s == nil {
		return false, nil
	}
	now := m.now()
	const tries = 16 // others may be as quick; in the queue for the lock everybody gets a turn
	for range tries {
		tat := s.tat.Load()
		if tat == taken || s.hash.Load() != h {
			break
		}
		if tat-now > d.top && d.inc != 0 {
			now = m.now() // perhaps only because others have been here since it was read
		}
		ahead := d.clamp(tat, now)
		admits := d.admits(ahead)
		to := tat
		if admits && d.inc != 0 {
			to = now + d.take(ahead)
		} else if d.takes() {
			to = min(tat, now+d.top)
		}
		if to == tat || s.tat.CompareAndSwap(tat, to) {
			d.result(ahead, admits, &c.Result)
			return true, nil
		}
	}
	return false, nil
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
