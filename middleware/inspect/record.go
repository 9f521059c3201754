package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/cowmap"
	"github.com/seed-e377111c/ratelimit/internal/subject"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// record is what an Inspector has observed.
type record struct {
	now     func() time.Time
	start   time.Time
	current func() []middleware.Policy
	store   redisstats.Store // nil if it has no Stats

	decisions ring                  // allowed or denied, by all policies together, and of these the degraded
	cause     atomic.Pointer[error] // the last Err
	policies  cowmap.Map[string, *series]

	mu   sync.Mutex // guards past
	past []snapshot // of the steps in the window, oldest first
}

// series counts the decisions of one policy.
type series struct {
	ring
	denied heavyHitters
	limits recentValues[gcra.Limit]
	kinds  recentValues[subject.Kinds] // of the keys
}

// recentLimits returns the limits of the window, the slowest first.
func (s *series) recentLimits() []gcra.Limit {
	return slices.SortedFunc(maps.Keys(s.limits.Load()), func(a, b gcra.Limit) int {
		return cmp.Or(cmp.Compare(a.Rate(), b.Rate()), cmp.Compare(a.Burst, b.Burst))
	})
}

// kindNames returns the kinds of the keys of the window, in alphabetical order.
func (s *series) kindNames() (names []string) {
	for k := range s.kinds.Load() {
		names = append(names, k.String())
	}
	slices.Sort(names)
	return names
}

// snapshot is a store's Stats at the beginning of a step.
type snapshot struct {
	step int64
	redisstats.Stats
}

// step returns the current step.
func (c *record) step() int64 { return int64(max(c.now().Sub(c.start), 0)/step) + 1 }

// observe records a decision of a limiter.
func (c *record) observe(_ *http.Request, d *middleware.Decision) {
	now := c.step()
	o := allowed
	if !d.Allowed {
		o = denied
	}
	if c.decisions.add(now, o) {
		c.beginStep(now)
	}

	if d.Err != nil {
		c.decisions.add(now, degraded)
		cause := d.Err // not &d.Err, which would put every decision on the heap
		c.cause.Store(&cause)
	}

	// What a server decides alone uses a share of the limit, which would pass for another limit.
	alone := d.Degraded()
	for i := range d.Results {
		r := &d.Results[i]
		s := c.policySeries(r.Policy)
		if k := subject.KindsOf(r.Subject); !s.kinds.observe(now, k) {
			for j := range k {
				k[j] = strings.Clone(k[j]) // which keeps no subject in memory
			}
			s.kinds.add(now, k)
		}

		limit := r.Limit
		if slices.Contains(alone, r.Policy) {
			limit = gcra.Limit{} // this server's share
		}
		if limit != (gcra.Limit{}) && !s.limits.observe(now, limit) { // a ban may have none
			s.limits.add(now, limit)
		}

		switch {
		case r.Allowed:
			s.add(now, allowed)
			continue
		case r.Shadow:
			s.add(now, shadowDenied)
		default:
			s.add(now, denied)
		}
		s.denied.add(now, r.Subject, limit)
	}
}

const maxReason = 300 // characters of an Err

// reason returns the last Err as one line.
func (c *record) reason() string {
	cause := c.cause.Load()
	if cause == nil {
		return ""
	}
	text := strings.ReplaceAll((*cause).Error(), "\n", "; ")
	if short := fmt.Sprintf("%.*s", maxReason, text); short != text {
		return short + "…"
	}
	return text
}

// policySeries returns the series of a policy, a new one if there is none.
func (c *record) policySeries(policy string) *series {
	s := c.policies.Load()[policy]
	if s == nil {
		c.policies.Update(func(all map[string]*series) {
			if s = all[policy]; s == nil {
				s = new(series)
				all[policy] = s
			}
		})
	}
	return s
}

// beginStep is called by the first decision of a step, and before a page is made. It
// drops what is older than the window, and policies that are no longer in force. It
// returns the store's Stats at the beginning of the window, taken in an earlier call.
func (c *record) beginStep(now int64) redisstats.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()

	if n := len(c.past); n == 0 || c.past[n-1].step < now {
		s := snapshot{step: now}
		if c.store != nil {
			s.Stats = c.store.Stats()
			s.Servers = nil
		}
		c.past = append(c.past, s)
	}

	for c.past[0].step <= now-steps { // the last is of this step, or of a later one
		c.past = c.past[1:]
	}

	// A policy that is gone stays on the page until its last decision leaves the window.
	inForce := map[string]bool{}
	for _, p := range c.current() {
		inForce[p.Name] = true
	}
	c.policies.Update(func(all map[string]*series) {
		maps.DeleteFunc(all, func(name string, s *series) bool {
			s.denied.forget(now)
			s.limits.forget(now)
			s.kinds.forget(now)
			return !inForce[name] && s.recent(now) == [steps]counts{}
		})
	})

	return c.past[0].Stats
}
