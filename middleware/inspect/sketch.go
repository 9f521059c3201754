package inspect

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
)

const (
	sketchSize = 64  // subjects in a sketch
	maxSubject = 512 // bytes kept of a subject
)

// sketch finds the most frequent subjects with a fixed number of counters (Space-Saving: Metwally,
// Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in data streams", 2005).
// A new subject takes over the smallest counter with its count. So a count is never too
// small, and too large by at most the count taken over, which is at most one 64th of all
// that was added, and which the page takes off.
type sketch struct {
	hashes   [sketchSize]uint64 // 0 if the counter is free
	counts   [sketchSize]int64
	counters [sketchSize]counter
}

// counter says what a count is of.
type counter struct {
	subject string
	cut     bool  // subject is only the beginning
	over    int64 // the part of the count that may be of other subjects
}

// add counts a subject once.
func (s *sketch) add(hash uint64, subject string) {
	at := slices.Index(s.hashes[:], hash)
	if at < 0 {
		at = slices.Index(s.counts[:], slices.Min(s.counts[:])) // 0 while a counter is free
		// Cloned, as the subject may be part of a large string.
		kept := strings.Clone(subject[:min(len(subject), maxSubject)])
		s.counters[at] = counter{subject: kept, cut: len(kept) < len(subject), over: s.counts[at]}
		s.hashes[at] = hash
	}
	s.counts[at]++
}

// Subjects are counted by panes of time, so that old ones are forgotten.
const (
	paneSteps = 12 // steps in a pane: 3 minutes
	panes     = 6  // the current one, and the 15 minutes before it
)

// seed is random, so that clients cannot choose subjects with equal hashes.
var seed = maphash.MakeSeed()

// hashOf is not 0.
func hashOf(subject string) uint64 { return maphash.String(seed, subject) | 1 }

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

func (h *heavyHitters) add(step int64, subject string) {
	// Denied requests share this lock, so the hash is computed in front of it.
	hash := hashOf(subject)
	number := paneOf(step)
	h.mu.Lock()
	defer h.mu.Unlock()

	p := &h.panes[number%panes]
	if p.number > number {
		return // older than the window
	}
	if p.number < number {
		*p = pane{number, new(sketch)}
	}
	p.sketch.add(hash, subject)
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

// top returns the n most frequent subjects, by how often they came at least.
func (h *heavyHitters) top(n int) []deniedSubject {
	h.mu.Lock()
	defer h.mu.Unlock()

	found := map[uint64]deniedSubject{}
	for _, p := range h.panes {
		if p.sketch == nil {
			continue
		}
		for i, c := range p.sketch.counters {
			if hash := p.sketch.hashes[i]; hash != 0 {
				found[hash] = deniedSubject{c.subject, c.cut, found[hash].AtLeast + p.sketch.counts[i] - c.over}
			}
		}
	}

	list := slices.SortedFunc(maps.Values(found), func(a, b deniedSubject) int {
		return cmp.Or(-cmp.Compare(a.AtLeast, b.AtLeast), cmp.Compare(a.Subject, b.Subject))
	})
	return list[:min(n, len(list))]
}
