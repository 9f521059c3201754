// Package buckets keeps the TATs of a bounded number of buckets in this process.
// gcra.Memory is a [Set], and so is the Redis store's cache of what Redis has
// answered.
//
// A Set divides its buckets among shards, each with a lock and a table. An admission
// locks the shards of its buckets; a single charge on a known bucket takes no lock.
package buckets

import (
	"hash/maphash"
	"math"
	"math/bits"
)

// Where to change what: buckets.go is the Set, table.go the table of a shard, apply.go an admission,
// fast.go a single charge. params.go caches what the charges of a policy have in common, clock.go
// tells the time, and sync_interleave_test.go lets a test choose how goroutines interleave.

// A Set holds buckets under 64-bit hashes of subject and policy.
//
// A bucket that is full equals one that was never seen, so it makes room for new
// keys. Those that find none share one overflow bucket for each policy and
// limit: in a common one, each smaller limit would bring the TAT of the others down.
//
// An admission takes all of its charges or none, whatever others do meanwhile:
//
//  1. It locks its shards in the order of their indexes, and the overflow shard last, so there
//     is no deadlock.
//  2. From lockTATs to commit it has locked the TATs of all its buckets, so that no charge
//     without a lock comes between the decision and its effect.
//  3. It reads the clock when the TATs are locked. A clock read before that may be behind the charges of
//     others, or in an earlier period, and their TATs would seem to be beyond the clamp. So a charge
//     without a lock, which has read it before, reads it again if the TAT is beyond the clamp.
//  4. Nothing puts an overflow bucket into debt: the debt of one subject must not deny all
//     that share the bucket.
type Set struct {
	clock  *Clock
	seed   maphash.Seed
	params paramsCache
	shards []shard // a power of two, at most 64, and the overflow shard
	shift  uint    // hash >> shift is the shard
}

// shard is a part of the buckets under a lock of its own, on cache lines of its
// own.
type shard struct {
	mutex
	table
	_ [64]byte
}

const (
	// MaxShards is the most shards, without the overflow shard: a set of them
	// fits a uint64.
	MaxShards = 64

	defaultCapacity = 1 << 20
	minShardKeys    = 1024 // with smaller shards, chance would fill one long before the others
)

// New returns an empty set of at most capacity buckets; 0 means 1 << 20. It allocates
// as buckets come. With notes it keeps a number beside each TAT, the note of Put.
func New(capacity int, clock *Clock, notes bool) *Set {
	if capacity <= 0 {
		capacity = defaultCapacity
	}
	n := 1
	for n < MaxShards && capacity/(2*n) >= minShardKeys {
		n *= 2
	}
	s := &Set{clock: clock, seed: maphash.MakeSeed(), shards: make([]shard, n+1)}
	s.shift = uint(64 - bits.TrailingZeros(uint(n)))
	for i := range s.shards {
		s.shards[i].init(capacity/n, notes)
	}
	s.shards[n].limit = math.MaxInt // policies and limits are of the program, not of its clients
	return s
}

// Shard is the index of a hash's shard.
func (s *Set) Shard(hash uint64) int { return int(hash >> s.shift) }

// Lock locks a shard, for Get and Put of its hashes.
func (s *Set) Lock(shard int) { s.shards[shard].Lock() }

// Unlock unlocks a shard.
func (s *Set) Unlock(shard int) { s.shards[shard].Unlock() }

// Get returns the TAT and the note of a bucket. Its shard must be locked. A set on
// which Get or Put is used must not use TakeFast.
func (s *Set) Get(hash uint64) (tat, note int64, ok bool) {
	a := s.shards[s.Shard(hash)].array.Load()
	i := indexOf(a.slots, hash)
	if i < 0 {
		return 0, 0, false
	}
	return a.slots[i].tat.Load(), a.notes[i], true
}

// Put stores the TAT and the note of a bucket. A bucket that is not known is added
// only if the TAT is after now and there is room; Apply stores the note 0. The shard
// must be locked, as for Get.
func (s *Set) Put(hash uint64, tat, note, now int64) {
	t := &s.shards[s.Shard(hash)].table
	if lapsed := s.clock.lapsed(now, s.clock.Calendar(now)); tat > lapsed {
		t.add(hash, lapsed)
	}
	t.set(hash, tat, note)
}
