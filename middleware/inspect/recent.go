package inspect

import (
	"sync"
	"sync/atomic"
)

// maxRecent bounds the values kept of one policy: plans and kinds of keys are few.
const maxRecent = 8

// recentValues are values that a policy has had in the window, such as its limits: only
// requests show what its functions return. It keeps the first maxRecent. Its zero value is
// ready.
type recentValues[T comparable] struct {
	mu    sync.Mutex // held to add a value
	slots [maxRecent]recentValue[T]
}

type recentValue[T comparable] struct {
	value atomic.Pointer[T]
	last  atomic.Int64 // the last step with the value
}

// find returns the slot of a value or, if there is none, a free one or nil.
func (r *recentValues[T]) find(now int64, value T) (s *recentValue[T], known bool) {
	for i := range r.slots {
		at := &r.slots[i]
		if v := at.value.Load(); v != nil && *v == value {
			return at, true
		} else if v == nil || at.last.Load() <= now-steps {
			s = at
		}
	}
	return s, false
}

// observe records a value, and returns false if it has to be added. It writes at most once
// in a step.
func (r *recentValues[T]) observe(now int64, value T) (done bool) {
	s, known := r.find(now, value)
	if known && s.last.Load() < now {
		s.last.Store(now)
	}
	return s == nil || known
}

func (r *recentValues[T]) add(now int64, value T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, known := r.find(now, value); s != nil && !known { // no other goroutine was first
		s.value.Store(&value)
		s.last.Store(now)
	}
}

// list returns the values of the window.
func (r *recentValues[T]) list(now int64) (all []T) {
	for i := range r.slots {
		if s := &r.slots[i]; s.last.Load() > max(now-steps, 0) {
			all = append(all, *s.value.Load())
		}
	}
	return all
}
