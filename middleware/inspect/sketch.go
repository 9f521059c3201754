package inspect

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"github.com/seed-e377111c/ratelimit/gcra"
)

const (
	sketchSize = 64  // subjects in a sketch
	maxSubject = 512 // bytes kept of a subject
)

// sketch finds the most frequent subjects with a fixed number of counters (Space-Saving).
// A new subject takes over the smallest counter with its count. So a count is never too
// small, and too large by at most the count taken over, which is at most one 64th of all
// that was added.
type sketch struct {
	used     int
	hashes   [sketchSize]uint64
	counts   [sketchSize]int64
	counters [sketchSize]counter
}

// counter says what a count is of.
type counter struct {
	subject string
	cut     bool       // subject is only the beginning
	over    int64      // the part of the count that may be of other subjects
	limit   gcra.Limit // the last one applied
}

// add counts a subject once. limit is the one applied to it, or zero if unknown.
func (s *sketch) add(hash uint64, subject string, limit gcra.Limit) {
	least := 0
	for i := range s.used {
		if s.hashes[i] == hash {
			s.counts[i]++
			if limit != (gcra.Limit{}) {
				s.counters[i].limit = limit
			}
			return
		}
		if s.counts[i] < s.counts[least] {
			least = i
		}
	}
	if s.used < sketchSize {
		least = s.used // whose count is 0
		s.used++
	}
	kept := subject[:min(len(subject), maxSubject)]
	// Cloned, as the subject may be part of a large string.
	s.counters[least] = counter{strings.Clone(kept), len(kept) < len(subject), s.counts[least], limit}
	s.hashes[least] = hash
	s.counts[least]++
}

// floor is the most that a subject without a counter may have been added.
func (s *sketch) floor() int64 {
	return slices.Min(s.counts[:]) // 0 while a counter is free
}

// Subjects are counted by panes of time, so that old ones are forgotten.
const (
	paneSteps = 12 // steps in a pane: 3 minutes
	panes     = 6  // the current one, and those of the 15 minutes before it
)

// seed is random, so that clients cannot choose subjects with equal hashes.
var seed = maphash.MakeSeed()

// heavyHitters finds the most frequent subjects of the last panes. Its zero value is
// ready and takes no memory before the first subject.
type heavyHitters struct {
	mu    sync.Mutex
	panes [panes]pane
}

type pane struct {
	number int64
	sketch *sketch
}

func paneOf(step int64) int64 { return (step-1)/paneSteps + 1 }

func (h *heavyHitters) add(step int64, subject string, limit gcra.Limit) {
	hash := maphash.String(seed, subject)
	number := paneOf(step)
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.panes[number%panes]
	if p.number != number {
		if p.number > number {
			return // older than the window
		}
		*p = pane{number, new(sketch)}
	}
	p.sketch.add(hash, subject, limit)
}

// forget drops panes that are older than the window.
func (h *heavyHitters) forget(now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.panes {
		if p := &h.panes[i]; p.number <= paneOf(now)-panes {
			*p = pane{}
		}
	}
}

// subjectCount is a frequent subject and the bounds of its count.
type subjectCount struct {
	counter
	atLeast, atMost int64
}

// top returns the n most frequent subjects, by their lower bounds.
func (h *heavyHitters) top(n int) []subjectCount {
	found := map[uint64]*subjectCount{}
	h.mu.Lock()
	defer h.mu.Unlock()
	var floors int64 // the most that a subject without any counter may have been added
	for i := range h.panes {
		s := h.panes[i].sketch
		if s == nil {
			continue
		}
		floor := s.floor()
		floors += floor
		for i := range s.used {
			r := found[s.hashes[i]]
			if r == nil {
				r = &subjectCount{counter: s.counters[i]}
				found[s.hashes[i]] = r
			}
			r.atLeast += s.counts[i] - s.counters[i].over
			r.atMost += s.counts[i] - floor
		}
	}
	list := make([]subjectCount, 0, len(found))
	for _, r := range found {
		r.atMost += floors
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b subjectCount) int {
		return cmp.Or(-cmp.Compare(a.atLeast, b.atLeast), -cmp.Compare(a.atMost, b.atMost), cmp.Compare(a.subject, b.subject))
	})
	return list[:min(n, len(list))]
}

// limitOf returns the limit that was last applied to a subject.
func (h *heavyHitters) limitOf(subject string) (l gcra.Limit, ok bool) {
	hash := maphash.String(seed, subject)
	h.mu.Lock()
	defer h.mu.Unlock()
	var newest int64
	for i := range h.panes {
		p := &h.panes[i]
		if p.sketch == nil || p.number < newest {
			continue
		}
		if at := slices.Index(p.sketch.hashes[:p.sketch.used], hash); at >= 0 {
			l, newest = p.sketch.counters[at].limit, p.number
		}
	}
	return l, l != (gcra.Limit{})
}
