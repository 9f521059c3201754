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
// store uses for another limit. Reload does not call it: limiters that share a limit
// are reloaded one after the other, and differ meanwhile.
func (l *Limiter) checkSharedNames() {
	for _, other := range l.register() {
		if iface.Same(l.store, other.store) {
			l.compareNames(other)
		}
	}
}

// register adds l to the limiters and returns the others.
func (l *Limiter) register() (others []*Limiter) {
	limiters.Lock()
	defer limiters.Unlock()
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

func (l *Limiter) compareNames(other *Limiter) {
	for _, p := range l.policies.Load().list {
		for _, q := range other.policies.Load().list {
			if p.Name == q.Name && p.LimitFor == nil && q.LimitFor == nil && p.Limit != q.Limit && p.Limit.Calendar() == q.Limit.Calendar() && l.firstShare(other, p.Name) {
				l.log.Report(diag.SharedName, p.Name, "two limiters use one policy name with different limits on the same store, so they share buckets: give each limit its own name",
					"policy", p.Name, "limit", p.Limit.String(), "other_limit", q.Limit.String())
			}
		}
	}
}

// firstShare records that the two limiters share a policy name, and reports
// whether neither was known to share it with a third one.
func (l *Limiter) firstShare(other *Limiter, name string) bool {
	limiters.Lock()
	defer limiters.Unlock()
	first := true
	for _, x := range []*Limiter{l, other} {
		if slices.Contains(x.shared, name) {
			first = false
		} else {
			x.shared = append(x.shared, name)
		}
	}
	return first
}
