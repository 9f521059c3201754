package middleware

import (
	"weak"

	"github.com/seed-e377111c/ratelimit/internal/iface"
	"github.com/seed-e377111c/ratelimit/internal/published"
)

// publish tells operators what the policies are, if the store can: now, and whenever it asks. The store
// does not keep the limiter alive.
func (l *Limiter) publish() {
	store, ok := l.cfg.Store.(iface.Publisher)
	if !ok {
		return
	}
	self := weak.Make(l)
	store.Publish(self, func() string {
		l := self.Value()
		if l == nil {
			return ""
		}
		return published.Text(l.published())
	})
}

func (l *Limiter) published() (all []published.Policy) {
	for _, p := range l.policies.Load().list {
		all = append(all, published.Policy{
			Name: p.Name, Limit: p.Limit, Plans: p.Plans, Function: p.LimitFor != nil && p.Plans == nil,
			Kinds: p.Kinds(), Shadow: p.Shadow, Follows: p.override != nil, MaxDebt: p.MaxDebt, MaxDelay: p.MaxDelay,
		})
	}
	return all
}
