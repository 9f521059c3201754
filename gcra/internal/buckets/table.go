package buckets

import (
	"math"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A table maps hashes to TATs: open addressing with linear probing, no pointers
// for the garbage collector to follow, 16 bytes a slot, or 24 with a note. An entry
// whose TAT is before now has lapsed and equals no entry, so it is dropped when the table has no
// more slots (see grow) or entries (see reclaim), and nothing needs a sweep.
//
// All methods but find need the lock of the shard. A charge on a known key takes
// no lock: it finds the slot, loads the TAT, and replaces it by one CompareAndSwap
// (see [Set.TakeFast]). That swap is the charge's linearization point. Invariants:
//
//  1. While a holder of the lock changes a slot, its TAT is locked: the holder
//     has swapped it out, and no CompareAndSwap succeeds in between.
//  2. A slot has one key: what is no entry any more stays locked for good, and so do the slots of
//     an array that has been replaced.
type table struct {
	array  pointer[array]
	used   int // entries
	filled int // entries and tombstones
	limit  int // most entries
	hand   int // where reclaim looks next
}

// A slot is empty, then an entry, and then a tombstone.
type slot struct {
	hash atomicUint64
	tat  atomicInt64
}

// An array is the slots of a table.
type array struct {
	slots []slot  // a power of two of them
	notes []int64 // beside each slot, under the lock; nil if the store needs none
}

const (
	empty     = 0 // the hash of a slot that ends a probe sequence
	tombstone = 1 // the hash of a slot whose entry was dropped; probing continues past it
	minHash   = 2 // the least hash of an entry

	locked = math.MaxInt64 // in the place of a TAT that a holder of the lock is about to replace
	unused = -1 << 62      // the TAT of an entry that is new: before any time
)

const leastSlots = 8

// keep is for how many ticks an entry that has lapsed stays while there is room. So a
// client that is far from its limit, whose bucket is full when it comes again, finds its slot and
// takes no lock. One that comes less often pays little: of a million such clients, fewer than a
// hundred thousand come in a second.
const keep = int64(10 * time.Second / tat.Tick)

// init makes the table ready for use.
func (t *table) init(limit int, noted bool) {
	t.limit = limit
	t.array.Store(newArray(leastSlots, noted))
}

func newArray(size int, noted bool) *array {
	a := &array{slots: make([]slot, size)}
	if noted {
		a.notes = make([]int64, size)
	}
	return a
}

func (t *table) slots() []slot { return t.array.Load().slots }

// find returns the slot of a hash, or nil. Without the lock it may miss an entry
// that is being moved.
func (t *table) find(hash uint64) *slot {
	slots := t.slots()
	if i := indexOf(slots, hash); i >= 0 {
		return &slots[i]
	}
	return nil
}

// indexOf is the index of the hash's slot, or -1.
func indexOf(slots []slot, hash uint64) int {
	mask := uint64(len(slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch slots[i].hash.Load() {
		case hash:
			return int(i)
		case empty:
			return -1
		}
	}
}

// lock locks the TAT of the hash's entry and returns it, for set to put one
// back. It returns unused and false if there is no entry.
func (t *table) lock(hash uint64) (tat int64, ok bool) {
	s := t.find(hash)
	if s == nil {
		return unused, false
	}
	return s.tat.Swap(locked), true
}

// add is lock, and adds an entry if there is none, which is unused. It returns false if there is no room.
func (t *table) add(hash uint64, now int64) (tat int64, ok bool) {
	if tat, ok := t.lock(hash); ok {
		return tat, true
	}

	// Room is made by entries that have lapsed only: none that denies is dropped.
	before := now - keep
	if t.used >= t.limit {
		if before = now; !t.reclaim(before) {
			return unused, false
		}
	}
	if (t.filled+1)*4 > len(t.slots())*3 {
		t.grow(before)
	}

	slots := t.slots()
	s := &slots[t.free(slots, hash)]
	s.tat.Store(locked)
	s.hash.Store(hash) // last, so that a charge without the lock finds the TAT locked until set
	return unused, true
}

// set stores the TAT and the note of the hash's entry, if there is one, which
// unlocks it. It looks the entry up again, for grow may have moved it.
func (t *table) set(hash uint64, tat, note int64) {
	a := t.array.Load()
	i := indexOf(a.slots, hash)
	if i < 0 {
		return
	}
	if a.notes != nil {
		a.notes[i] = note
	}
	a.slots[i].tat.Store(tat)
}

// lockLapsed locks the TAT of an entry if it has lapsed before a time.
func (s *slot) lockLapsed(before int64) bool {
	tat := s.tat.Load()
	return tat < before && s.tat.CompareAndSwap(tat, locked)
}

// free counts one more entry and returns the index of its slot: the first in the
// hash's probe sequence that is empty. There must be one.
func (t *table) free(slots []slot, hash uint64) int {
	mask := uint64(len(slots) - 1)
	i := hash & mask
	for slots[i].hash.Load() != empty {
		i = (i + 1) & mask
	}
	t.used++
	t.filled++
	return int(i)
}

// grow moves the entries to a new array with room for one more, and drops those
// that have lapsed before a time.
func (t *table) grow(before int64) {
	old := t.array.Load()

	// Lock those that have lapsed, and count the others.
	live := 0
	for i := range old.slots {
		s := &old.slots[i]
		if s.hash.Load() < minHash {
			continue
		}
		if !s.lockLapsed(before) {
			live++
			continue
		}
		s.hash.Store(tombstone) // or a charge without the lock would move the TAT of an entry that was not counted
	}

	size := leastSlots
	for size < 2*(live+1) {
		size *= 2
	}
	to := newArray(size, old.notes != nil)

	t.used, t.filled, t.hand = 0, 0, 0
	for i := range old.slots {
		hash := old.slots[i].hash.Load()
		// A TAT that the holder of the lock has locked stays locked in its new slot.
		if tat := old.slots[i].tat.Swap(locked); hash >= minHash {
			j := t.free(to.slots, hash)
			if to.notes != nil {
				to.notes[j] = old.notes[i]
			}
			to.slots[j].tat.Store(tat)
			to.slots[j].hash.Store(hash)
		}
	}

	t.array.Store(to)
}

// reclaim looks at the next slots of a full table for an entry that has lapsed,
// and makes it a tombstone. It looks at a few only: a flood of new keys must not
// cost a sweep each.
func (t *table) reclaim(now int64) bool {
	const few = 32
	slots := t.slots()
	for range min(few, len(slots)) {
		s := &slots[t.hand&(len(slots)-1)]
		t.hand++
		if s.hash.Load() >= minHash && s.lockLapsed(now) {
			s.hash.Store(tombstone)
			t.used--
			return true
		}
	}
	return false
}
