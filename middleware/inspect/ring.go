package inspect

import (
	"sync"
	"sync/atomic"
	"time"
)

// Time is counted in steps since the Inspector was made, from 1 on.
const (
	step   = 15 * time.Second
	window = 15 * time.Minute
	steps  = int64(window / step) // that are shown, the one under way included
)

// outcome is what became of a decision.
type outcome int

const (
	allowed outcome = iota
	refused
	shadowed // would have been refused
	outcomes
)

// counts are so many of each outcome.
type counts [outcomes]int64

// ring counts outcomes, each step by itself, and forgets those that are no
// longer shown. Its zero value is ready, and an add waits for nobody but once in
// a step.
type ring struct {
	mu    sync.Mutex // held to give a slot to a new step
	slots [64]slot
}

type slot struct {
	step   atomic.Int64
	counts [outcomes]atomic.Int64
}

// add counts an outcome, and reports whether it was the first in its step.
func (r *ring) add(step int64, o outcome) (first bool) {
	s := &r.slots[step%int64(len(r.slots))]
	if at := s.step.Load(); at != step {
		if at > step {
			return false // too late by more than is shown
		}
		first = r.turn(s, step)
	}
	s.counts[o].Add(1)
	return first
}

// turn gives a slot to a step. The step is told last: until then nobody else
// counts into the slot.
func (r *ring) turn(s *slot, step int64) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.step.Load() >= step {
		return false // somebody was faster
	}
	for o := range s.counts {
		s.counts[o].Store(0)
	}
	s.step.Store(step)
	return true
}

// recent returns the counts of the last steps, oldest first, up to that which
// is under way.
func (r *ring) recent(now int64) [steps]counts {
	var all [steps]counts
	for i := range all {
		at := now - steps + 1 + int64(i)
		if at < 1 {
			continue
		}
		s := &r.slots[at%int64(len(r.slots))]
		if s.step.Load() == at {
			for o := range s.counts {
				all[i][o] = s.counts[o].Load()
			}
		}
	}
	return all
}

// idle reports whether nothing has been counted that is still shown.
func (r *ring) idle(now int64) bool {
	for i := range r.slots {
		if at := r.slots[i].step.Load(); at > 0 && at > now-steps {
			return false
		}
	}
	return true
}
