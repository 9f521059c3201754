package buckets

import (
	"math"
	"sync/atomic"
)

// A table maps hashes to TATs: open addressing with linear probing, no pointers
// for the garbage collector to follow, 16 bytes a slot besides the note. An entry
// whose TAT is before now has lapsed and equals no entry, so new keys take over
// its slot and nothing needs a sweep.
//
// All methods but find need the lock of the shard. A charge on a known key takes
// no lock: it finds the slot, loads the TAT, checks that the hash is still its
// own, and replaces the TAT by one CompareAndSwap (see [Set.TakeFast]). That swap
// is the charge's linearization point. Invariants:
//
//  1. While a holder of the lock changes a slot, its TAT is locked: the holder
//     has swapped it out, and no CompareAndSwap succeeds in between.
//  2. A slot changes its hash only while its TAT is locked.
//  3. No ABA: once a slot has been taken over, its TAT is never again one that it
//     had before. The old TAT was before the time of the takeover, which reused
//     is not before; a new TAT is a marker, each of which is used once, or is
//     not before the time at which it is stored; and when that time is before
//     reused, because the clock has gone back, the entries move to a new array
//     first.
//  4. The slots of an array that has been replaced stay locked for good.
type table[N any] struct {
	slots  atomic.Pointer[[]slot[N]] // their number is a power of two; nil at first
	reused atomic.Int64              // the latest time at which a slot of this array was taken over
	used   int                       // entries
	filled int                       // entries and tombstones
	limit  int                       // most entries
	hand   int                       // of the clock by which reclaim goes round
	marker int64                     // the last marker; they are negative and grow
}

// A slot is empty, a tombstone or an entry.
type slot[N any] struct {
	note N // of the store; under the lock
	hash atomic.Uint64
	tat  atomic.Int64
}

const (
	empty     = 0 // the hash of a slot that ends a probe sequence
	tombstone = 1 // the hash of a slot that has been given up; probing continues past it
	minHash   = 2 // the least hash of an entry

	locked      = math.MaxInt64 // in the place of a TAT that a holder of the lock is about to replace
	firstMarker = -1 << 62      // before any time
)

func (t *table[N]) all() []slot[N] {
	if s := t.slots.Load(); s != nil {
		return *s
	}
	return nil
}

// find returns the slot of a hash, or nil. Without the lock it may miss an entry
// that is being moved.
func (t *table[N]) find(hash uint64) *slot[N] {
	slots := t.all()
	if len(slots) == 0 {
		return nil
	}
	mask := uint64(len(slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch s := &slots[i]; s.hash.Load() {
		case hash:
			return s
		case empty:
			return nil
		}
	}
}

// lock locks the TAT of the hash's entry and returns it, for set to put one
// back. It returns false if there is no entry.
func (t *table[N]) lock(hash uint64) (tat int64, ok bool) {
	s := t.find(hash)
	if s == nil {
		return 0, false
	}
	return s.tat.Swap(locked), true
}

// add is lock, and adds an entry if there is none, with a marker for its TAT. It
// returns false if there is no room.
func (t *table[N]) add(hash uint64, now int64) (tat int64, ok bool) {
	if tat, ok := t.lock(hash); ok {
		return tat, true
	}
	s := t.takeOver(hash, now)
	if s == nil {
		if t.used >= t.limit && !t.reclaim(now) {
			return 0, false
		}
		if (t.filled+1)*4 > len(t.all())*3 {
			t.grow(now)
		}
		s = t.free(t.all(), hash)
		s.tat.Store(locked)
	}
	s.hash.Store(hash)
	t.marker++
	return firstMarker + t.marker, true
}

// set stores the TAT and the note of the hash's entry, if there is one, which
// unlocks it. It looks the entry up again, for grow may have moved it.
func (t *table[N]) set(hash uint64, tat int64, note N) {
	if s := t.find(hash); s != nil {
		s.note = note
		s.tat.Store(tat)
	}
}

// takeOver returns a slot in the hash's probe sequence whose entry has lapsed,
// with its TAT locked, or nil.
func (t *table[N]) takeOver(hash uint64, now int64) *slot[N] {
	slots := t.all()
	if len(slots) == 0 {
		return nil
	}
	mask := uint64(len(slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &slots[i]
		switch s.hash.Load() {
		case empty:
			return nil
		case tombstone:
		default:
			if s.lockLapsed(now) {
				t.reused.Store(max(t.reused.Load(), now))
				return s
			}
		}
	}
}

// lockLapsed locks the TAT of an entry if it has lapsed.
func (s *slot[N]) lockLapsed(now int64) bool {
	tat := s.tat.Load()
	return tat < now && s.tat.CompareAndSwap(tat, locked)
}

// free counts one more entry and returns the slot for it: the first in the
// hash's probe sequence that is empty or a tombstone. There must be one.
func (t *table[N]) free(slots []slot[N], hash uint64) *slot[N] {
	mask := uint64(len(slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch s := &slots[i]; s.hash.Load() {
		case empty:
			t.filled++
			fallthrough
		case tombstone:
			t.used++
			return s
		}
	}
}

// grow moves the entries to a new array with room for one more, and drops those
// that have lapsed.
func (t *table[N]) grow(now int64) {
	old := t.all()
	live := 0
	for i := range old {
		if old[i].hash.Load() < minHash {
			continue
		}
		if !old[i].lockLapsed(now) {
			live++
			continue
		}
		old[i].hash.Store(tombstone) // or a charge without the lock would move the TAT of an entry that was not counted
	}
	size := 8
	for size < 2*(live+1) {
		size *= 2
	}
	slots := make([]slot[N], size)
	t.used, t.filled, t.hand = 0, 0, 0
	for i := range old {
		hash := old[i].hash.Load()
		// A TAT that the holder of the lock has locked moves as such.
		if tat := old[i].tat.Swap(locked); hash >= minHash {
			s := t.free(slots, hash)
			s.note = old[i].note
			s.tat.Store(tat)
			s.hash.Store(hash)
		}
	}
	t.slots.Store(&slots)
	t.reused.Store(math.MinInt64)
}

// follow moves the entries to a new array if the clock has gone back since a slot
// of this one was taken over.
func (t *table[N]) follow(now int64) {
	if now < t.reused.Load() {
		t.grow(now)
	}
}

// reclaim looks at the next slots of a full table for an entry that has lapsed,
// and makes it a tombstone. It looks at a few only: a flood of new keys must not
// cost a sweep each.
func (t *table[N]) reclaim(now int64) bool {
	const few = 32
	slots := t.all()
	for range min(few, len(slots)) {
		s := &slots[t.hand&(len(slots)-1)]
		t.hand++
		if s.hash.Load() < minHash {
			continue
		}
		if s.lockLapsed(now) {
			t.reused.Store(max(t.reused.Load(), now))
			s.hash.Store(tombstone)
			t.used--
			return true
		}
	}
	return false
}
