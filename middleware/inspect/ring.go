package inspect

import (
	"sync"
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

// ring counts outcomes by step, for the steps of the window. Its zero value is ready.
type ring struct {
	mu    sync.Mutex
	slots [steps]slot
}

// slot has the counts of a step.
type slot struct {
	step   int64
	counts counts
}

// add counts an outcome, and reports whether it was the first in its step.
func (r *ring) add(step int64, o outcome) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.slots[step%steps]
	if first = s.step < step; first {
		*s = slot{step: step}
	}
	if s.step == step { // otherwise it is older than the window
		s.counts[o]++
	}
	return first
}

// recent returns the counts of the window's steps, oldest first.
func (r *ring) recent(now int64) (all [steps]counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.slots {
		if age := now - s.step; 0 <= age && age < steps {
			all[steps-1-age] = s.counts // of step 0 there are none
		}
	}
	return all
}
