package inspect

import "sync/atomic"

// maxRecent bounds the values kept of one policy: plans and kinds of keys are few.
const maxRecent = 8

// recentValues are values that a policy has had in the window, such as its limits: only
// requests show what its functions return. It keeps the first maxRecent. Its zero value is
// ready.
type recentValues[T comparable] [maxRecent]atomic.Pointer[recentValue[T]]

type recentValue[T comparable] struct {
	value T
	last  atomic.Int64 // the last step with the value
}

// old reports whether the value was not seen in the window. v may be nil.
func (v *recentValue[T]) old(now int64) bool { return v == nil || v.last.Load() <= now-steps }

// observe records a value, and returns false if it has to be added. It writes at most once
// in a step.
func (r *recentValues[T]) observe(now int64, value T) (done bool) {
	full := true
	for i := range r {
		v := r[i].Load()
		if v != nil && v.value == value {
			if v.last.Load() < now {
				v.last.Store(now)
			}
			return true
		}
		full = full && !v.old(now)
	}
	return full
}

// add adds a value. If another goroutine is faster, the next request adds it.
func (r *recentValues[T]) add(now int64, value T) {
	for i := range r {
		if v := r[i].Load(); v.old(now) {
			added := &recentValue[T]{value: value}
			added.last.Store(now)
			r[i].CompareAndSwap(v, added)
			return
		}
	}
}

// list returns the values of the window.
func (r *recentValues[T]) list(now int64) (all []T) {
	for i := range r {
		if v := r[i].Load(); !v.old(now) {
			all = append(all, v.value)
		}
	}
	return all
}
