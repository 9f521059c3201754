package inspect

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// record is what an Inspector has observed.
type record struct {
	now     func() time.Time
	start   time.Time
	current func() ([]middleware.Policy, map[string]*middleware.Limiter)

	decisions ring                  // allowed or denied, by all policies together, and of these the degraded
	cause     atomic.Pointer[error] // the last Err
	policies  sync.Map              // of *series, by name
}

// series counts the decisions of one policy.
type series struct {
	ring
	denied heavyHitters
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
		c.forget(now)
	}

	if d.Err != nil {
		c.decisions.add(now, degraded)
		cause := d.Err // not &d.Err, which would put every decision on the heap
		c.cause.Store(&cause)
	}

	for i := range d.Results {
		r := &d.Results[i]
		s := c.policySeries(r.Policy)
		switch {
		case r.Allowed:
			s.add(now, allowed)
			continue
		case r.Shadow:
			s.add(now, shadowDenied)
		default:
			s.add(now, denied)
		}
		s.denied.add(now, r.Subject)
	}
}

// reason returns the beginning of the last Err, as one line.
func (c *record) reason() string {
	cause := c.cause.Load()
	if cause == nil {
		return ""
	}
	return fmt.Sprintf("%.300s", strings.ReplaceAll((*cause).Error(), "\n", "; "))
}

// policySeries returns the series of a policy, a new one if there is none.
func (c *record) policySeries(policy string) *series {
	s, known := c.policies.Load(policy)
	if !known {
		s, _ = c.policies.LoadOrStore(policy, new(series))
	}
	return s.(*series)
}

// forget is called by the first decision of a step, and before a page is made. It drops what is older
// than the window, and policies that are no longer in force.
func (c *record) forget(now int64) {
	_, inForce := c.current()
	for name, s := range c.policies.Range {
		if inForce[name.(string)] == nil {
			c.policies.Delete(name)
		}
		s.(*series).denied.forget(now)
	}
}
