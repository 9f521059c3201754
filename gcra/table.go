package gcra

// table maps hashes to TATs: open addressing with linear probing, 24 bytes a
// slot, no pointers for the garbage collector to follow. An entry whose TAT is
// not after now is as good as absent, so newcomers take such slots over where
// they stand and nothing needs to be swept.
type table struct {
	slots []slot // a power of two, or none
	used  int    // slots that are not empty
	limit int    // most slots that may be used
	hand  int    // where reclaim goes on looking
}

type slot struct {
	hash uint64 // 0: empty
	tat  int64
	note note // the mirror's; 0 in a Memory
}

// find returns the slot of a hash, or nil. It is good until the table changes.
func (t *table) find(hash uint64) *slot {
	if len(t.slots) == 0 {
		return nil
	}
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch s := &t.slots[i]; s.hash {
		case hash:
			return s
		case 0:
			return nil
		}
	}
}

// set changes the entry of a hash that has one; otherwise it does nothing.
func (t *table) set(hash uint64, tat int64, n note) {
	if s := t.find(hash); s != nil {
		s.tat, s.note = tat, n
	}
}

// hold makes sure that the hash has an entry whose TAT is after now, by a tick
// where it was not, and returns its slot, or nil where there was no place. So
// an entry that is about to be charged is nobody's to take over.
func (t *table) hold(hash uint64, now int64) *slot {
	if s := t.find(hash); s != nil {
		s.tat = max(s.tat, now+1)
		return s
	}
	held := slot{hash: hash, tat: now + 1}
	if s := t.lapsed(hash, now); s != nil {
		*s = held
		return s
	}
	if t.used >= t.limit && !t.reclaim(now) {
		return nil
	}
	if (t.used+1)*4 > len(t.slots)*3 {
		t.grow(now)
	}
	return t.insert(held)
}

// lapsed returns a slot on the hash's way whose entry has lapsed, or nil.
func (t *table) lapsed(hash uint64, now int64) *slot {
	if len(t.slots) == 0 {
		return nil
	}
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; t.slots[i].hash != 0; i = (i + 1) & mask {
		if t.slots[i].tat <= now {
			return &t.slots[i]
		}
	}
	return nil
}

// insert puts an entry into an empty slot; there must be one.
func (t *table) insert(s slot) *slot {
	mask := uint64(len(t.slots) - 1)
	i := s.hash & mask
	for t.slots[i].hash != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = s
	t.used++
	return &t.slots[i]
}

// grow makes room for one more entry and drops those that have lapsed.
func (t *table) grow(now int64) {
	live := 0
	for _, s := range t.slots {
		if s.hash != 0 && s.tat > now {
			live++
		}
	}
	size := 8
	for size < 2*(live+1) {
		size *= 2
	}
	old := t.slots
	t.slots, t.used, t.hand = make([]slot, size), 0, 0
	for _, s := range old {
		if s.hash != 0 && s.tat > now {
			t.insert(s)
		}
	}
}

// reclaim looks through the next slots of a full table for one that has
// lapsed and empties it. It looks at a few only: a flood of newcomers must not
// buy a sweep each.
func (t *table) reclaim(now int64) bool {
	const few = 32
	for range min(few, len(t.slots)) {
		i := t.hand & (len(t.slots) - 1)
		t.hand++
		if s := t.slots[i]; s.hash != 0 && s.tat <= now {
			t.remove(uint64(i))
			return true
		}
	}
	return false
}

// remove empties slot i and moves up what lies behind it on the same way
// (Knuth, TAOCP volume 3, 6.4, algorithm R).
func (t *table) remove(i uint64) {
	mask := uint64(len(t.slots) - 1)
	for j := (i + 1) & mask; t.slots[j].hash != 0; j = (j + 1) & mask {
		if home := t.slots[j].hash & mask; (j-home)&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = slot{}
	t.used--
}
