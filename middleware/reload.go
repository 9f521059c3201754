package middleware

import (
	"errors"
	"net/http"
	"slices"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Reload replaces all policies at once: a limiter decides a request by the old ones or by
// the new ones. If there is a mistake in the policies, Reload changes nothing and returns
// the error, as [New] does.
//
// A policy that keeps its name keeps its buckets, so what keys have used counts against
// the new limit: of a rate as the time until the bucket is full, in the stores of
// slidinglog as units. A rate and a quota, and quotas by two calendars, have separate
// buckets.
func (l *Limiter) Reload(policies ...Policy) error {
	ps, errs := l.compile(policies)
	if len(errs) == 0 {
		l.policies.Store(ps)
		l.publish()
	}
	return errors.Join(errs...)
}

// Policies returns the current policies.
func (l *Limiter) Policies() []Policy {
	ps := l.policies.Load()
	list := make([]Policy, len(ps.list))
	for i, p := range ps.list {
		list[i] = p.Policy
	}
	return list
}

// Store returns [Config.Store].
func (l *Limiter) Store() gcra.Store { return l.cfg.Store }

// Observe makes the limiter call f for its decisions from now on, after [Config.Observe]
// and the functions added before. f must keep to the rules of Config.Observe, and cannot
// be removed. A nil f does nothing.
func (l *Limiter) Observe(f func(*http.Request, *Decision)) {
	for f != nil {
		old := l.observers.Load()
		list := append(slices.Clip(*old), f)
		if l.observers.CompareAndSwap(old, &list) {
			return
		}
	}
}
