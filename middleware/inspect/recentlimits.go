package inspect

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/cowmap"
)

// maxRecentLimits bounds the limits kept for one policy: plans are few.
const maxRecentLimits = 8

// recentLimits are the limits that a policy has used lately, each with the last step in
// which it did: only requests show what LimitFor returns. It keeps the first
// maxRecentLimits. Its zero value is ready.
type recentLimits struct {
	last cowmap.Map[gcra.Limit, *atomic.Int64]
}

// observe records a limit. It writes at most once in a step.
func (s *recentLimits) observe(step int64, l gcra.Limit) {
	known := s.last.Load()
	if last := known[l]; last != nil {
		if last.Load() < step {
			last.Store(step)
		}
		return
	}
	if len(known) == maxRecentLimits {
		return
	}

	s.last.Update(func(all map[gcra.Limit]*atomic.Int64) {
		if all[l] == nil && len(all) < maxRecentLimits { // or another goroutine was first
			all[l] = new(atomic.Int64)
			all[l].Store(step)
		}
	})
}

// forget drops limits that were not seen in the window.
func (s *recentLimits) forget(now int64) {
	s.last.Update(func(all map[gcra.Limit]*atomic.Int64) {
		maps.DeleteFunc(all, func(_ gcra.Limit, last *atomic.Int64) bool { return last.Load() <= now-steps })
	})
}

// limits returns them, the slowest first.
func (s *recentLimits) limits() []gcra.Limit {
	return slices.SortedFunc(maps.Keys(s.last.Load()), func(a, b gcra.Limit) int {
		return cmp.Or(cmp.Compare(a.Rate(), b.Rate()), cmp.Compare(a.String(), b.String()))
	})
}
