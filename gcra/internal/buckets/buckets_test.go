package buckets

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/test/race"
)

// A set of 10,000 holds no more of a million keys, and allocates nothing when it is full.
func TestSetIsBounded(t *testing.T) {
	race.Skip(t)

	const capacity = 10_000
	m := New(capacity, NewClock(nil), false)
	slots := func() (used, size int) {
		for i := range m.shards[:len(m.shards)-1] {
			used += m.shards[i].used
			size += len(m.shards[i].slots())
		}
		return used, size
	}

	full := 0
	for i := range 1_000_000 {
		take(t, m, fmt.Sprint(i), tat.Limit{Count: 1, Per: 24 * time.Hour})
		if i == 10*capacity {
			_, full = slots()
		}
	}

	used, size := slots()
	if used > capacity || used < capacity*9/10 {
		t.Errorf("got %d keys; want at most and about %d", used, capacity)
	}

	if size > 4*capacity || size != full {
		t.Errorf("got %d slots, %d when it had just filled; want them equal and at most %d", size, full, 4*capacity)
	}
	if m.overflow().used != 1 || len(m.overflow().slots()) > 8 {
		t.Errorf("the overflow has %d of %d slots used; want 1, for one policy", m.overflow().used, len(m.overflow().slots()))
	}
}

// Buckets that are full again keep their slots while there is room, and make room for others later.
func TestFullBucketsKeepSlots(t *testing.T) {
	now := time.Unix(tat.Epoch, 0)
	s := New(2000, NewClock(func() time.Time { return now }), false) // has one shard
	size := 0
	for generation := range 10 {
		for i := range 1000 {
			now = now.Add(time.Millisecond)
			take(t, s, fmt.Sprint(generation, " ", i), tat.Limit{Count: 1000, Per: time.Second})
		}

		if generation == 0 {
			size = len(s.shards[0].slots())
		}
		if used, got := s.shards[0].used, len(s.shards[0].slots()); used < 1000 || got != size {
			t.Errorf("after %d thousand keys: got %d in %d slots; want 1000 or more in %d", generation+1, used, got, size)
		}
		now = now.Add(tat.Duration(keep))
	}
}

// The shards together hold no more than the capacity. A small set has one shard, since
// one of several would fill long before the others.
func TestCapacityIsKept(t *testing.T) {
	for _, capacity := range []int{-1, 0, 1, 2, 3, 1000, 1023, 2047, 2048, 100_000, 1 << 20, 1<<20 + 1, math.MaxInt32} {
		m := New(capacity, NewClock(nil), false)
		total, shards := 0, len(m.shards)-1 // without the overflow shard
		for i := range shards {
			total += m.shards[i].limit
		}

		want := capacity
		if capacity <= 0 {
			want = 1 << 20
		}
		if total > want || total < want-MaxShards || shards == 1 && total != want {
			t.Errorf("capacity %d: got slots for %d keys in %d shards; want %d", capacity, total, shards, want)
		}

		for range 1000 {
			h := m.bucketHash("a", m.policyHash("b", nil))
			if i := h >> m.shift; i >= uint64(shards) {
				t.Fatalf("capacity %d: hash %x is in shard %d of %d", capacity, h, i, shards)
			}
		}
	}
}

// take charges one unit as gcra.Memory does.
func take(t testing.TB, s *Set, subject string, limit tat.Limit) (allowed bool) {
	t.Helper()
	var ops [1]Op
	if err := Prepare(s, &tat.Charge[tat.Limit, tat.Result]{Subject: subject, Policy: "p", Cost: 1}, limit, false, &ops[0].Charge); err != nil {
		t.Fatal(err)
	}
	if s.TakeFast(&ops[0].Charge) {
		return ops[0].Admits(ops[0].Ahead)
	}
	return s.Apply(ops[:])
}

// A set with notes keeps TAT and note of each bucket while its tables grow.
func TestNotesAreKept(t *testing.T) {
	s := New(0, NewClock(nil), true)
	hash := func(i int64) uint64 { return uint64(i) * 0x9e3779b97f4a7c15 }
	const keys = 5000
	for i := int64(1); i <= keys; i++ {
		shard := s.Shard(hash(i))
		s.Lock(shard)
		s.Put(hash(i), 1<<40+i, i, 0)
		s.Unlock(shard)
	}

	for i := int64(1); i <= keys; i++ {
		shard := s.Shard(hash(i))
		s.Lock(shard)
		if tat, note, ok := s.Get(hash(i)); tat != 1<<40+i || note != i || !ok {
			t.Fatalf("bucket %d: got %d, %d, %v", i, tat, note, ok)
		}
		s.Unlock(shard)
	}
}
