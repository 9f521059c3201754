package inspect

import (
	"sync"
	"sync/atomic"
	"time"
)

// Time is counted in steps since the Inspector was created, from 1.
const (
	step   = 15 * time.Second
	window = 15 * time.Minute
	steps  = int64(window / step) // in the window, with the current one
)

// outcome is the outcome of a decision.
type outcome int

const (
	allowed outcome = iota
	denied
	shadowDenied
	degraded // beside one of these
	outcomes
)

// counts are numbers by outcome.
type counts [outcomes]int64

// ring counts outcomes by step, for the steps of the window. Its zero value is ready. add
// takes a lock at most once in a step.
type ring struct {
	mu    sync.Mutex // held to reuse a slot
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
			return false // older than the window
		}
		first = r.reuse(s, step)
	}
	s.counts[o].Add(1)
	return first
}

// reuse gives a slot to a step. It stores the step last: no other goroutine counts in
// the slot before.
func (r *ring) reuse(s *slot, step int64) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.step.Load() >= step {
		return false // another goroutine was first
	}
	for o := range s.counts {
		s.counts[o].Store(0)
	}
	s.step.Store(step)
	return true
}

// recent returns the counts of the window's steps, oldest first.
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
