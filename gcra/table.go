package gcra

import (
	"math"
	"sync/atomic"
)

// table maps hashes to TATs: open addressing with linear probing, 24 bytes a
// slot, no pointers for the garbage collector to follow. An entry whose TAT is
// before now has lapsed and is as good as absent, so newcomers take such slots
// over where they stand and nothing needs to be swept.
//
// Its methods are for the holder of a lock, but for find: whoever has found a
// slot may replace its TAT by one CompareAndSwap without any lock. That is safe
// because
//
//   - the holder of the lock who changes a slot takes its TAT out first
//     (Swap(taken)), so nobody's CompareAndSwap comes between;
//   - a slot that has changed hands never has a TAT again that it had before: it
//     was before now then, and what follows is not, or is one of the vacant ones,
//     of which no two are the same (a clock that is set back by its owner, at the
//     moment between a load and a swap, could charge one key for another);
//   - slots that are left behind when the table grows stay taken.
//
// So find the slot, load its TAT, see that it is not taken, look at the hash
// again, and swap.
type table struct {
	slots  atomic.Pointer[[]slot] // a power of two, or nil
	used   int                    // entries
	filled int                    // slots that are not empty: entries, and what was given up
	limit  int                    // most entries
	hand   int                    // where reclaim goes on looking
	vacant int64                  // counts the TATs of those who owe nothing
}

type slot struct {
	hash atomic.Uint64
	tat  atomic.Int64
	note note // the mirror's; 0 in a Memory
}

const (
	empty  = 0 // the hash of a slot where ways end
	gone   = 1 // the hash of a slot that was given up: ways go on behind it
	hashes = 2 // the least hash of an entry

	taken       = math.MaxInt64 // in the place of a TAT that somebody is about to replace
	firstVacant = -1 << 62      // before any time
)

func (t *table) all() []slot {
	if s := t.slots.Load(); s != nil {
		return *s
	}
	return nil
}

// find returns the slot of a hash, or nil. Without the lock it may miss an entry
// that is on the move.
func (t *table) find(hash uint64) *slot {
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

// set changes the entry of a hash that has one; otherwise it does nothing.
func (t *table) set(hash uint64, tat int64, n note) {
	if s := t.find(hash); s != nil {
		s.note = n
		s.tat.Store(tat)
	}
}

// noTAT is the TAT of an entry that owes nothing, another one each time.
func (t *table) noTAT() int64 {
	t.vacant++
	return firstVacant + t.vacant
}

// take takes the TAT out of the entry of a hash, for set to put one back, and
// reports false if there is none.
func (t *table) take(hash uint64) (tat int64, ok bool) {
	s := t.find(hash)
	if s == nil {
		return 0, false
	}
	return s.tat.Swap(taken), true
}

// hold makes sure that the hash has an entry and takes its TAT out, for set to
// put one back; until then it is nobody's to take over. It reports false where
// there is no place.
func (t *table) hold(hash uint64, now int64) (tat int64, ok bool) {
	if tat, ok := t.take(hash); ok {
		return tat, true
	}
	if s := t.lapsed(hash, now); s != nil {
		s.hash.Store(hash)
		return t.noTAT(), true
	}
	if t.used >= t.limit && !t.reclaim(now) {
		return 0, false
	}
	if (t.filled+1)*4 > len(t.all())*3 {
		t.grow(now)
	}
	s := t.vacancy(t.all(), hash)
	s.tat.Store(taken)
	s.hash.Store(hash)
	return t.noTAT(), true
}

// lapsed returns a slot on the hash's way whose entry has lapsed, with its TAT
// taken out, or nil.
func (t *table) lapsed(hash uint64, now int64) *slot {
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
		case gone:
		default:
			if s.takeLapsed(now) {
				return s
			}
		}
	}
}

// takeLapsed takes the TAT of an entry out if it has lapsed.
func (s *slot) takeLapsed(now int64) bool {
	tat := s.tat.Load()
	return tat < now && s.tat.CompareAndSwap(tat, taken)
}

// vacancy counts one more entry and returns a slot for it; there must be one.
func (t *table) vacancy(slots []slot, hash uint64) *slot {
	mask := uint64(len(slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch s := &slots[i]; s.hash.Load() {
		case empty:
			t.filled++
			fallthrough
		case gone:
			t.used++
			return s
		}
	}
}

// grow makes room for one more entry and drops those that have lapsed.
func (t *table) grow(now int64) {
	old := t.all()
	live := 0
	for i := range old {
		if old[i].hash.Load() < hashes {
			continue
		}
		if !old[i].takeLapsed(now) {
			live++
			continue
		}
		old[i].hash.Store(gone) // or a charge without a lock would bring back what was not counted
	}
	size := 8
	for size < 2*(live+1) {
		size *= 2
	}
	slots := make([]slot, size)
	t.used, t.filled, t.hand = 0, 0, 0
	for i := range old {
		hash := old[i].hash.Load()
		// One that is taken, by the holder of the lock, moves as such.
		if tat := old[i].tat.Swap(taken); hash >= hashes {
			s := t.vacancy(slots, hash)
			s.note = old[i].note
			s.tat.Store(tat)
			s.hash.Store(hash)
		}
	}
	t.slots.Store(&slots)
}

// reclaim looks through the next slots of a full table for an entry that has
// lapsed and gives it up. It looks at a few only: a flood of newcomers must not
// buy a sweep each.
func (t *table) reclaim(now int64) bool {
	const few = 32
	slots := t.all()
	for range min(few, len(slots)) {
		s := &slots[t.hand&(len(slots)-1)]
		t.hand++
		if s.hash.Load() < hashes {
			continue
		}
		if s.takeLapsed(now) {
			s.hash.Store(gone)
			t.used--
			return true
		}
	}
	return false
}
