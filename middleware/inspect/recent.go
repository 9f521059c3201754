package inspect

import (
	"maps"

	"github.com/seed-e377111c/ratelimit/internal/cowmap"
)

// maxRecent bounds the values kept of one policy: plans and kinds of keys are few.
const maxRecent = 8

// recentValues are values that a policy has had in the window, such as its limits, with the
// last step of each: only requests show what its functions return. It keeps the first
// maxRecent. Its zero value is ready.
type recentValues[T comparable] struct{ cowmap.Map[T, int64] }

// observe reports whether a value need not be added: it was in this step, or there is no room.
func (r *recentValues[T]) observe(now int64, value T) (done bool) {
	all := r.Load()
	last, known := all[value]
	return last >= now || !known && len(all) >= maxRecent
}

// add adds a value.
func (r *recentValues[T]) add(now int64, value T) {
	r.Update(func(all map[T]int64) {
		if _, known := all[value]; known || len(all) < maxRecent {
			all[value] = max(all[value], now) // another request may be further
		}
	})
}

// forget drops the values that are older than the window.
func (r *recentValues[T]) forget(now int64) {
	r.Update(func(all map[T]int64) {
		maps.DeleteFunc(all, func(_ T, last int64) bool { return last <= now-steps })
	})
}
