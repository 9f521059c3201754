// Package buckets keeps the TATs of a bounded number of buckets in this process.
// gcra.Memory is a [Set]; the Redis store keeps in another what Redis has said.
//
// A Set (here) divides its keys among shards, each with a lock and a table
// (table.go). An admission locks the shards of its keys (apply.go); a charge of
// its own on a known key takes no lock (fast.go). params.go caches what charges
// of a policy have in common, clock.go is the time.
package buckets

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
)

// A Set holds buckets under 64-bit hashes of subject and policy. N is what a
// store keeps beside each TAT; struct{} takes no space.
//
// A bucket that is full equals one that was never seen, so its slot goes to the
// next new key. When no slot is found among buckets in debt, new keys share one
// overflow bucket for each policy.
type Set[N any] struct {
	clock  *Clock
	seed   maphash.Seed
	params paramsCache
	shards []shard[N] // a power of two, at most 64, and the overflow shard
	shift  uint       // hash >> shift is the shard
}

// shard is a part of the buckets under a lock of its own, on cache lines of its
// own.
type shard[N any] struct {
	sync.Mutex
	table[N]
	_ [64]byte
}

const (
	// DefaultCapacity is the number of buckets if none is given.
	DefaultCapacity = 1 << 20

	// MaxShards is the most shards, without the overflow shard: a set of them
	// fits a uint64.
	MaxShards = 64

	minShardKeys = 1024 // below this many keys a shard, chance would fill one long before the others
)

// New returns an empty set of at most capacity buckets; 0 means DefaultCapacity.
// It allocates slots as buckets come, 32 to 96 bytes each where N takes none.
func New[N any](capacity int, clock *Clock) *Set[N] {
	if capacity <= 0 {
		capacity = DefaultCapacity
	}
	n := 1
	for n < MaxShards && capacity/(2*n) >= minShardKeys {
		n *= 2
	}
	s := &Set[N]{clock: clock, seed: maphash.MakeSeed(), shards: make([]shard[N], n+1)}
	s.shift = uint(64 - bits.TrailingZeros(uint(n)))
	for i := range s.shards {
		s.shards[i].limit = capacity / n
	}
	s.shards[n].limit = math.MaxInt // policies are named by the program, not by its clients
	return s
}

// Shard is the index of a hash's shard.
func (s *Set[N]) Shard(hash uint64) int { return int(hash >> s.shift) }

// Lock locks a shard, for Get and Put of its hashes.
func (s *Set[N]) Lock(shard int) { s.shards[shard].Lock() }

// Unlock unlocks a shard.
func (s *Set[N]) Unlock(shard int) { s.shards[shard].Unlock() }

// Get returns what is kept of a bucket. Its shard must be locked, and no charge
// may go by TakeFast.
func (s *Set[N]) Get(hash uint64) (tat int64, note N, ok bool) {
	if e := s.shards[s.Shard(hash)].find(hash); e != nil {
		return e.tat.Load(), e.note, true
	}
	return 0, note, false
}

// Put keeps a TAT and a note. One that is not in the future of now is kept only
// where the bucket is known; without room for a new bucket, nothing is. The
// shard must be locked, and no charge may go by TakeFast.
func (s *Set[N]) Put(hash uint64, tat int64, note N, now int64) {
	t := &s.shards[s.Shard(hash)].table
	if tat > now {
		t.add(hash, now)
	}
	t.set(hash, tat, note)
}
