package middleware

import (
	"reflect"
	"slices"
	"sync"
	"weak"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// limiters are those of this process, for the check of New. It keeps none of
// them alive.
var limiters struct {
	sync.Mutex
	list []weak.Pointer[Limiter]
}

// checkNames logs the names of l's policies that another limiter on the same
// store has for another limit. Only New calls it: limiters that share a limit
// are reloaded one after the other.
func (l *Limiter) checkSharedNames() {
	for _, other := range l.join() {
		if sameStore(l.store, other.store) {
			l.compareNames(other)
		}
	}
}

// join adds l to the limiters and returns the others.
func (l *Limiter) join() (others []*Limiter) {
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
			if p.Name == q.Name && p.LimitFor == nil && q.LimitFor == nil && p.Limit != q.Limit && !l.sharedKnown(other, p.Name) {
				l.log.Report(diag.SharedName, p.Name, "two limiters use one policy name with different limits on the same store, so they share buckets: give each limit its own name",
					"policy", p.Name, "limit", p.Limit.String(), "other_limit", q.Limit.String())
			}
		}
	}
}

// sharedKnown reports whether a line about the name has been logged, for another
// limiter on the store, and notes that it has now.
func (l *Limiter) sharedKnown(other *Limiter, name string) bool {
	limiters.Lock()
	defer limiters.Unlock()
	known := slices.Contains(l.shared, name) || slices.Contains(other.shared, name)
	for _, x := range []*Limiter{l, other} {
		if !slices.Contains(x.shared, name) {
			x.shared = append(x.shared, name)
		}
	}
	return known
}

// sameStore compares stores, also those of types that cannot be compared.
func sameStore(a, b gcra.Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
