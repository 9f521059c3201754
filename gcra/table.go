package gcra

// table maps hashes to TATs: open addressing with linear probing, 16 bytes a
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
}

// get returns the TAT of a hash.
func (t *table) get(hash uint64) (tat int64, ok bool) {
	if len(t.slots) == 0 {
		return 0, false
	}
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch t.slots[i].hash {
		case hash:
			return t.slots[i].tat, true
		case 0:
			return 0, false
		}
	}
}

// set stores the TAT of a hash that is in the table; otherwise it does nothing.
func (t *table) set(hash uint64, tat int64) {
	if len(t.slots) == 0 {
		return
	}
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; t.slots[i].hash != 0; i = (i + 1) & mask {
		if t.slots[i].hash == hash {
			t.slots[i].tat = tat
			return
		}
	}
}

// hold makes sure that the hash has an entry whose TAT is after now, by a tick
// where it was not, and reports whether there was a place. So an entry that is
// about to be charged is nobody's to take over.
func (t *table) hold(hash uint64, now int64) bool {
	if tat, ok := t.get(hash); ok {
		t.set(hash, max(tat, now+1))
		return true
	}
	if t.takeOver(hash, now) {
		return true
	}
	if t.used >= t.limit && !t.reclaim(now) {
		return false
	}
	if (t.used+1)*4 > len(t.slots)*3 {
		t.grow(now)
	}
	t.insert(slot{hash, now + 1})
	return true
}

// takeOver gives a slot on the hash's way whose entry has lapsed to the hash.
func (t *table) takeOver(hash uint64, now int64) bool {
	if len(t.slots) == 0 {
		return false
	}
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; t.slots[i].hash != 0; i = (i + 1) & mask {
		if t.slots[i].tat <= now {
			t.slots[i] = slot{hash, now + 1}
			return true
		}
	}
	return false
}

// insert puts an entry into an empty slot; there must be one.
func (t *table) insert(s slot) {
	mask := uint64(len(t.slots) - 1)
	i := s.hash & mask
	for t.slots[i].hash != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = s
	t.used++
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
