package inspect

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// maxRecentLimits bounds the limits kept for one policy: plans are few.
const maxRecentLimits = 8

// recentLimits are the limits that a policy has used lately: only requests show what
// LimitFor returns. It keeps the first maxRecentLimits. Its zero value is ready.
type recentLimits struct {
	mu   sync.Mutex // held to replace the list
	list atomic.Pointer[[]*recentLimit]
}

type recentLimit struct {
	gcra.Limit
	step atomic.Int64 // the last one with this limit
}

func (s *recentLimits) load() []*recentLimit {
	if list := s.list.Load(); list != nil {
		return *list
	}
	return nil
}

// observe records a limit. It writes at most once in a step.
func (s *recentLimits) observe(step int64, l gcra.Limit) {
	list := s.load()
	for _, known := range list {
		if known.Limit == l {
			if known.step.Load() < step {
				known.step.Store(step)
			}
			return
		}
	}
	if len(list) < maxRecentLimits {
		s.add(step, l)
	}
}

func (s *recentLimits) add(step int64, l gcra.Limit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.load()
	if len(list) == maxRecentLimits || slices.ContainsFunc(list, func(known *recentLimit) bool { return known.Limit == l }) {
		return // another goroutine was first
	}
	known := &recentLimit{Limit: l}
	known.step.Store(step)
	list = append(slices.Clip(list), known)
	s.list.Store(&list)
}

// forget drops limits that were not seen in the window.
func (s *recentLimits) forget(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := func(known *recentLimit) bool { return known.step.Load() <= now-steps }
	if list := s.load(); slices.ContainsFunc(list, old) {
		list = slices.DeleteFunc(slices.Clone(list), old)
		s.list.Store(&list)
	}
}

// limits returns them, the slowest first.
func (s *recentLimits) limits() []gcra.Limit {
	var all []gcra.Limit
	for _, known := range s.load() {
		all = append(all, known.Limit)
	}
	slices.SortFunc(all, func(a, b gcra.Limit) int {
		return cmp.Or(cmp.Compare(a.Rate(), b.Rate()), cmp.Compare(a.Burst, b.Burst))
	})
	return all
}
