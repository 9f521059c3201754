package middleware

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Reload replaces all policies at once: a request is decided by those before or
// by those after, never by a mix. What keys have used up stays, as far as the
// names of the policies do, and is held against the new limits. With a mistake
// in the policies it changes nothing and returns the error that [New] would.
func (l *Limiter) Reload(policies ...Policy) error {
	ps, errs := compile(policies)
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	l.use(ps)
	return nil
}

func (l *Limiter) use(ps *policies) {
	ps.limiter = l
	for _, p := range ps.list {
		p.limiter = l
	}
	l.policies.Store(ps)
}

// Policies returns the policies as they are now.
func (l *Limiter) Policies() []Policy {
	ps := l.policies.Load()
	list := make([]Policy, len(ps.list))
	for i, p := range ps.list {
		list[i] = p.Policy
	}
	return list
}

// Store returns the store that was configured.
func (l *Limiter) Store() gcra.Store { return l.store }

// Observe has f called for each decision from now on, after [Config.Observe]
// and those that were added before; what is said there holds for f, too. It
// cannot be taken back. A nil f does nothing.
func (l *Limiter) Observe(f func(*http.Request, Decision)) {
	if f != nil {
		l.observers.add(f)
	}
}

// observers is a list that is read for each request and hardly ever changed.
type observers struct {
	mu   sync.Mutex
	list atomic.Pointer[[]func(*http.Request, Decision)]
}

func (o *observers) load() []func(*http.Request, Decision) {
	if list := o.list.Load(); list != nil {
		return *list
	}
	return nil
}

func (o *observers) add(f func(*http.Request, Decision)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := append(slices.Clip(o.load()), f)
	o.list.Store(&list)
}
