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
	counters   = 64  // subjects that a sketch follows
	maxSubject = 512 // bytes that are kept of one
)

// sketch finds the subjects that come most often, with a fixed number of
// counters (Space-Saving). A newcomer takes over the smallest counter and its
// count, so a count is never too small, and too large by at most what was taken
// over: no more than one part in so many counters of all that was added.
type sketch struct {
	used   int
	hashes [counters]uint64
	counts [counters]int64
	heads  [counters]head
}

// head is what a counter stands for.
type head struct {
	subject string
	cut     bool       // the subject is longer
	over    int64      // how much of the count may be of others
	limit   gcra.Limit // that it was held to last
}

// add counts a subject once. A limit that is not zero is the one it was held to.
func (s *sketch) add(hash uint64, subject string, limit gcra.Limit) {
	least := 0
	for i := range s.used {
		if s.hashes[i] == hash {
			s.counts[i]++
			if limit != (gcra.Limit{}) {
				s.heads[i].limit = limit
			}
			return
		}
		if s.counts[i] < s.counts[least] {
			least = i
		}
	}
	if s.used < counters {
		least = s.used // whose count is 0
		s.used++
	}
	kept := subject[:min(len(subject), maxSubject)]
	// A clone: the subject may be a part of a whole request.
	s.heads[least] = head{strings.Clone(kept), len(kept) < len(subject), s.counts[least], limit}
	s.hashes[least] = hash
	s.counts[least]++
}

// floor is how often a subject may have come that has no counter.
func (s *sketch) floor() int64 {
	return slices.Min(s.counts[:]) // 0 while a counter is free
}

// Subjects are counted pane by pane, so that those of long ago are forgotten.
const (
	paneSteps = 12 // steps in a pane: 3 minutes
	panes     = 6  // the one under way, and those of the 15 minutes before it
)

// seed makes it hopeless to look for two subjects of one hash.
var seed = maphash.MakeSeed()

// heavy finds the subjects that came most often in the last panes. Its zero
// value is ready, and takes memory once a subject is added.
type heavy struct {
	mu    sync.Mutex
	panes [panes]pane
}

type pane struct {
	number int64
	sketch *sketch
}

func paneOf(step int64) int64 { return (step-1)/paneSteps + 1 }

func (h *heavy) add(step int64, subject string, limit gcra.Limit) {
	hash := maphash.String(seed, subject)
	number := paneOf(step)
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.panes[number%panes]
	if p.number != number {
		if p.number > number {
			return // too late by more than is shown
		}
		*p = pane{number, new(sketch)}
	}
	p.sketch.add(hash, subject, limit)
}

// forget drops what is no longer shown.
func (h *heavy) forget(now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.panes {
		if p := &h.panes[i]; p.number <= paneOf(now)-panes {
			*p = pane{}
		}
	}
}

// repeated is a subject that came often.
type repeated struct {
	head
	atLeast, atMost int64
}

// top returns the n subjects that came most often, the most certain first.
func (h *heavy) top(now int64, n int) []repeated {
	h.forget(now)
	found := map[uint64]*repeated{}
	h.mu.Lock()
	defer h.mu.Unlock()
	var floors int64 // how often a subject without any counter may have come
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
				r = &repeated{head: s.heads[i]}
				found[s.hashes[i]] = r
			}
			r.atLeast += s.counts[i] - s.heads[i].over
			r.atMost += s.counts[i] - floor
		}
	}
	list := make([]repeated, 0, len(found))
	for _, r := range found {
		r.atMost += floors
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b repeated) int {
		return cmp.Or(-cmp.Compare(a.atLeast, b.atLeast), -cmp.Compare(a.atMost, b.atMost), cmp.Compare(a.subject, b.subject))
	})
	return list[:min(n, len(list))]
}

// limitOf returns the limit that a subject was held to when it last came.
func (h *heavy) limitOf(subject string) (l gcra.Limit, ok bool) {
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
			l, newest = p.sketch.heads[at].limit, p.number
		}
	}
	return l, l != (gcra.Limit{})
}
