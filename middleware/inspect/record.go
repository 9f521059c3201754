package inspect

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/cowmap"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// record is what an Inspector has observed.
type record struct {
	now     func() time.Time
	start   time.Time
	current func() []middleware.Policy
	stats   func() gcra.Stats // of the store; nil if it has none

	decisions ring                  // allowed or denied, by all policies together
	degraded  ring                  // of these, the ones with an Err
	cause     atomic.Pointer[error] // the last Err
	policies  cowmap.Map[string, *series]

	mu   sync.Mutex // guards past
	past []snapshot // of the steps in the window, oldest first
}

// series counts the decisions of one policy.
type series struct {
	ring
	denied       heavyHitters
	recentLimits recentLimits
}

// snapshot is a store's Stats at the beginning of a step.
type snapshot struct {
	step int64
	gcra.Stats
}

func (c *record) begin(now func() time.Time, current func() []middleware.Policy, stats func() gcra.Stats) {
	c.now, c.start, c.current, c.stats = now, now(), current, stats
	c.beginStep(c.step())
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
		c.degraded.add(now, o)
		cause := d.Err // not &d.Err, which would put every decision on the heap
		c.cause.Store(&cause)
	}
	degraded := d.Degraded()
	for i := range d.Results {
		r := &d.Results[i]
		s := c.policySeries(r.Policy)
		limit := r.Limit
		if slices.Contains(degraded, r.Policy) {
			limit = gcra.Limit{} // this server's share
		} else if limit != (gcra.Limit{}) { // a ban may have none
			s.recentLimits.observe(now, limit)
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
	text := []rune(strings.ReplaceAll((*cause).Error(), "\n", "; "))
	if len(text) > maxReason {
		text = append(text[:maxReason], '…')
	}
	return string(text)
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
// takes a snapshot of the store's Stats and drops what is older than the window.
func (c *record) beginStep(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.past); c.stats != nil && (n == 0 || c.past[n-1].step < now) {
		s := c.stats()
		s.Servers = nil
		c.past = append(c.past, snapshot{now, s})
	}
	for len(c.past) > 1 && c.past[0].step <= now-steps {
		c.past = c.past[1:]
	}
	c.forget(now)
}

// forget drops old subjects and limits, and policies that are no longer in force.
func (c *record) forget(now int64) {
	inForce := map[string]bool{}
	for _, p := range c.current() {
		inForce[p.Name] = true
	}
	c.policies.Update(func(all map[string]*series) {
		maps.DeleteFunc(all, func(name string, s *series) bool {
			s.denied.forget(now)
			s.recentLimits.forget(now)
			return !inForce[name] && s.idle(now)
		})
	})
}

// before returns the store's Stats before the window; total are those of now.
func (c *record) before(now int64, total gcra.Stats) gcra.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.past {
		if s.step > now-steps {
			return s.Stats
		}
	}
	return total
}

// statsOf returns the store's Stats method, or nil if it has none.
func statsOf(s gcra.Store) func() gcra.Stats {
	if s, ok := s.(gcra.StatsStore); ok {
		return s.Stats
	}
	return nil
}
