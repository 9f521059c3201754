package overrides

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/subject"
)

// Table is the entries that there are. The zero value is empty.
type Table struct {
	All      []*Found
	subjects subject.Table[[]*Found]
}

// Found is an entry with its limit, as GCRA returns it.
type Found struct {
	Entry
	Of gcra.Limit
}

// Add adds an entry that is right.
func (t *Table) Add(e Entry) {
	f := &Found{e, e.GCRA()}
	t.All = append(t.All, f)
	of := t.subjects.At(e.Subject)
	*of = append(*of, f)
}

// Find returns the entry that holds for a key in a policy at a time, or nil. An entry of the key
// itself goes before one of a network, and a longer prefix before a shorter; within these, see
// [Entry.Wins].
func (t *Table) Find(policy, key string, now time.Time) (best *Found) {
	for entries := range t.subjects.Find(key) {
		for _, e := range *entries {
			applies := (e.Policy == policy || e.Policy == "") && now.Before(e.Until)
			if applies && (best == nil || e.Wins(&best.Entry)) {
				best = e
			}
		}
		if best != nil {
			return best
		}
	}
	return nil
}
