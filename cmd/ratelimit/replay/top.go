package replay

import (
	"cmp"
	"container/heap"
	"slices"
)

// top finds the most frequent of any number of subjects, in bounded memory: Space-Saving
// (Metwally, Agrawal, El Abbadi 2005). In a full table a new subject replaces the one with
// the lowest count and continues from that count. So a count is never too low, and too high
// by at most the count inherited. Every subject with more than one in topSize of all
// occurrences is in the table.
type top struct {
	counts []*count // a heap, the lowest first
	known  map[uint64]*count
}

const (
	topSize     = 1000
	longestName = 64
)

type count struct {
	name      string
	hash      uint64
	n         int64 // upper bound
	inherited int64 // n minus inherited is the lower bound
	index     int   // in the heap
}

// add counts a subject, identified by its hash.
func (t *top) add(name string, hash uint64) {
	if c := t.known[hash]; c != nil {
		c.n++
		heap.Fix(t, c.index)
		return
	}

	if len(name) > longestName {
		name = name[:longestName] + "..."
	}

	if len(t.counts) < topSize {
		if t.known == nil {
			t.known = map[uint64]*count{}
		}
		c := &count{name: name, hash: hash, n: 1}
		t.known[hash] = c
		heap.Push(t, c)
		return
	}

	// The name that was seen least makes room, and the new one inherits its count.
	c := t.counts[0]
	delete(t.known, c.hash)
	t.known[hash] = c
	c.name, c.hash, c.inherited = name, hash, c.n
	c.n++
	heap.Fix(t, 0)
}

// first returns the n subjects with the highest counts.
func (t *top) first(n int) []count {
	all := make([]count, 0, len(t.counts))
	for _, c := range t.counts {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b count) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.inherited, b.inherited), cmp.Compare(a.name, b.name))
	})
	return all[:min(n, len(all))]
}

func (t *top) Len() int           { return len(t.counts) }
func (t *top) Less(i, j int) bool { return t.counts[i].n < t.counts[j].n }
func (t *top) Swap(i, j int) {
	t.counts[i], t.counts[j] = t.counts[j], t.counts[i]
	t.counts[i].index, t.counts[j].index = i, j
}
func (t *top) Push(x any) {
	c := x.(*count)
	c.index = len(t.counts)
	t.counts = append(t.counts, c)
}
func (t *top) Pop() any { panic("unused: entries are replaced, not removed") }
