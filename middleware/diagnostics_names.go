package middleware

import (
	"slices"
	"sync"
	"weak"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/iface"
)

// limiters are all limiters of this process, for the check of New. It keeps none
// of them alive.
var limiters struct {
	sync.Mutex
	list []weak.Pointer[Limiter]
}

// checkSharedNames logs the names of l's policies that another limiter on the same
// store uses for another limit. The line is the oldest limiter's, which logs it once however
// many there are. Reload does not call this: limiters that share a limit are reloaded one after
// the other, and differ meanwhile.
func (l *Limiter) checkSharedNames() {
	others := l.register()
	for _, p := range l.policies.Load().list {
		for _, other := range others {
			if q, err := other.policies.Load().named(p.Name); err == nil && iface.Same(l.cfg.Store, other.cfg.Store) && p.differs(q) {
				other.log.Report(diag.SharedName, p.Name, "two limiters use one policy name with different limits on the same store, so they may share buckets: give each limit its own name",
					"policy", p.Name, "limit", p.Limit.String(), "other_limit", q.Limit.String())
				break
			}
		}
	}
}

// differs reports whether two policies of one name have different limits on the same buckets.
func (p *policy) differs(q *policy) bool {
	a, b := p.Limit, q.Limit
	return p.LimitFor == nil && q.LimitFor == nil && a.Calendar() == b.Calendar() && (a.Interval() != b.Interval() || a.Capacity() != b.Capacity())
}

// register adds l to the limiters and returns the others.
func (l *Limiter) register() (others []*Limiter) {
	limiters.Lock()
	defer limiters.Unlock()
	// Each New removes the limiters that are gone, so the list does not grow.
	limiters.list = slices.DeleteFunc(limiters.list, func(w weak.Pointer[Limiter]) bool {
		other := w.Value()
		if other != nil {
			others = append(others, other)
		}
		return other == nil
	})
	limiters.list = append(limiters.list, weak.Make(l))
	return others
}
