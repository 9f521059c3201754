package inspect

import (
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

// ring counts outcomes by step, for the steps of the window, without a lock. Its zero value
// is ready.
type ring [steps]atomic.Pointer[slot]

// slot has the counts of a step.
type slot struct {
	step   int64
	counts [outcomes]atomic.Int64
}

// add counts an outcome, and reports whether it was the first in its step.
func (r *ring) add(step int64, o outcome) (first bool) {
	at := &r[step%steps]
	s := at.Load()
	if s == nil || s.step < step {
		first = at.CompareAndSwap(s, &slot{step: step})
		s = at.Load() // this one, or the one of a goroutine that was first
	}

	if s.step == step { // otherwise it is older than the window
		s.counts[o].Add(1)
	}
	return first
}

// recent returns the counts of the window's steps, oldest first.
func (r *ring) recent(now int64) [steps]counts {
	var all [steps]counts
	for i := range all {
		// Steps before the first, and slots that an older step still has, count nothing.
		at := now - steps + 1 + int64(i)
		if at < 1 {
			continue
		}

		if s := r[at%steps].Load(); s != nil && s.step == at {
			for o := range s.counts {
				all[i][o] = s.counts[o].Load()
			}
		}
	}
	return all
}
