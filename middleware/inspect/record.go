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
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// record is what an Inspector knows of the decisions that it has seen.
type record struct {
	now     func() time.Time
	start   time.Time
	current func() []middleware.Policy
	stats   func() redisstore.Stats // of the store; nil if it has none

	decisions ring                  // allowed or refused, by all policies together
	degraded  ring                  // of these, taken with an Err: counted as allowed or refused
	cause     atomic.Pointer[error] // the last such Err
	policies  atomic.Pointer[map[string]*series]

	mu   sync.Mutex // of what changes at most once in a step, and of new policies
	past []snapshot // of the steps that are shown, oldest first
}

// series is what is known of a policy, by its name.
type series struct {
	ring
	refused heavy
	limits  seen
}

// snapshot is what a store had done when a step began.
type snapshot struct {
	step int64
	redisstore.Stats
}

func (c *record) begin(now func() time.Time, current func() []middleware.Policy, stats func() redisstore.Stats) {
	c.now, c.start, c.current, c.stats = now, now(), current, stats
	c.policies.Store(new(map[string]*series))
	c.turn(c.step())
}

// step is the step that is under way.
func (c *record) step() int64 { return int64(max(c.now().Sub(c.start), 0)/step) + 1 }

// observe is called for each decision of the limiters.
func (c *record) observe(_ *http.Request, d middleware.Decision) {
	now := c.step()
	o := allowed
	if !d.Allowed {
		o = refused
	}
	if c.decisions.add(now, o) {
		c.turn(now)
	}
	if d.Err != nil {
		c.degraded.add(now, o)
		cause := d.Err // not &d.Err, which would put every decision on the heap
		c.cause.Store(&cause)
	}
	away := d.Degraded()
	for i := range d.Results {
		r := &d.Results[i]
		s := c.of(r.Policy)
		limit := r.Limit
		if slices.Contains(away, r.Policy) {
			limit = gcra.Limit{} // this server's share
		} else {
			s.limits.note(now, limit)
		}
		switch {
		case r.Allowed:
			s.add(now, allowed)
			continue
		case r.Shadow:
			s.add(now, shadowed)
		default:
			s.add(now, refused)
		}
		s.refused.add(now, r.Subject, limit)
	}
}

const maxReason = 300 // characters of an Err that are shown

// reason is the last Err in a line.
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

// of returns the series of a policy.
func (c *record) of(policy string) *series {
	if s := (*c.policies.Load())[policy]; s != nil {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := *c.policies.Load()
	if s := before[policy]; s != nil {
		return s
	}
	after := maps.Clone(before)
	if after == nil {
		after = map[string]*series{}
	}
	s := new(series)
	after[policy] = s
	c.policies.Store(&after)
	return s
}

// turn is called when a step begins that has something in it: it keeps what the
// store had done until then, and drops whatever is no longer shown.
func (c *record) turn(now int64) {
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

// forget drops the subjects and limits of long ago, and policies that are gone.
func (c *record) forget(now int64) {
	inForce := map[string]bool{}
	for _, p := range c.current() {
		inForce[p.Name] = true
	}
	before := *c.policies.Load()
	after := maps.Clone(before)
	for name, s := range before {
		s.refused.forget(now)
		s.limits.forget(now)
		if !inForce[name] && s.idle(now) {
			delete(after, name)
		}
	}
	if len(after) < len(before) {
		c.policies.Store(&after)
	}
}

// recentStats is what the store has done in the time that is shown.
func (c *record) recentStats(now int64, total redisstore.Stats) redisstore.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := total
	for _, s := range c.past {
		if s.step > now-steps {
			from = s.Stats
			break
		}
	}
	return redisstore.Stats{
		Batches:       total.Batches - from.Batches,
		Operations:    total.Operations - from.Operations,
		BatchTime:     total.BatchTime - from.BatchTime,
		FailedBatches: total.FailedBatches - from.FailedBatches,
		CachedDenials: total.CachedDenials - from.CachedDenials,
	}
}

// statsOf returns the Stats of a store that has them, and otherwise nil.
func statsOf(s gcra.Store) func() redisstore.Stats {
	if s, ok := s.(interface{ Stats() redisstore.Stats }); ok {
		return s.Stats
	}
	return nil
}
