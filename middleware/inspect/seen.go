package inspect

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// maxSeen is how many limits of one policy are followed: plans are few.
const maxSeen = 8

// seen are the limits that a policy has gone by lately: what LimitFor gives is
// told by the requests alone. When there are more than maxSeen, those that came
// first are kept. Its zero value is ready.
type seen struct {
	mu   sync.Mutex // to change the list, which is copied
	list atomic.Pointer[[]*seenLimit]
}

type seenLimit struct {
	gcra.Limit
	step atomic.Int64 // when it was last seen
}

func (s *seen) load() []*seenLimit {
	if list := s.list.Load(); list != nil {
		return *list
	}
	return nil
}

// note is called for each decision, and writes at most once in a step.
func (s *seen) note(step int64, l gcra.Limit) {
	list := s.load()
	for _, known := range list {
		if known.Limit == l {
			if known.step.Load() < step {
				known.step.Store(step)
			}
			return
		}
	}
	if len(list) < maxSeen {
		s.add(step, l)
	}
}

func (s *seen) add(step int64, l gcra.Limit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.load()
	if len(list) == maxSeen || slices.ContainsFunc(list, func(known *seenLimit) bool { return known.Limit == l }) {
		return // somebody was faster
	}
	known := &seenLimit{Limit: l}
	known.step.Store(step)
	list = append(slices.Clip(list), known)
	s.list.Store(&list)
}

// forget drops limits that were not seen in the time that is shown.
func (s *seen) forget(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := func(known *seenLimit) bool { return known.step.Load() <= now-steps }
	if list := s.load(); slices.ContainsFunc(list, old) {
		list = slices.DeleteFunc(slices.Clone(list), old)
		s.list.Store(&list)
	}
}

// limits returns them, the slowest first.
func (s *seen) limits() []gcra.Limit {
	var all []gcra.Limit
	for _, known := range s.load() {
		all = append(all, known.Limit)
	}
	rate := func(l gcra.Limit) float64 { return float64(l.Count) / float64(l.Per) }
	slices.SortFunc(all, func(a, b gcra.Limit) int {
		return cmp.Or(cmp.Compare(rate(a), rate(b)), cmp.Compare(a.Burst, b.Burst))
	})
	return all
}
