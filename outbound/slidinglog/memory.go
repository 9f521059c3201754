package slidinglog

import (
	"context"
	"maps"
	"math"
	"sort"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Memory is a [gcra.Store] that keeps its logs in this process. The zero value
// is ready to use.
//
// Its memory is not bounded: it holds the keys that were charged within their window, and
// some others. Use it for a few partners; for public clients use [gcra.Memory].
type Memory struct {
	clock func() time.Time // nil means the monotonic time since start

	mu      sync.Mutex
	logs    map[name]*log
	sweepAt int // number of logs at which those that have expired, or were never charged, are deleted
}

// NewMemory returns an empty Memory.
func NewMemory(cfg Config) *Memory { return &Memory{clock: cfg.Now} }

type name struct{ subject, policy string }

// log corresponds to the list in Redis. Units are numbered in order.
//
//  1. Charges are in the order of their times: a charge is never logged before the newest.
//  2. Each has at least one unit: a refund of all that is in the window deletes the log.
//  3. After an ordinary charge no time is further ahead of now than its MaxDelay.
type log struct {
	charges []charge      // by time; the oldest may have left the window
	first   int64         // number of the first unit of charges[0]
	expires time.Duration // when the window is empty
}

// charge is the units that were logged by one charge.
type charge struct {
	at   time.Duration
	stop int64 // number of its last unit, plus 1
}

// Take implements [gcra.Store].
func (m *Memory) Take(ctx context.Context, charges []gcra.Charge) (allowed bool, err error) {
	ps, err := paramsOf(ctx, charges, false)
	if err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()

	now := m.now()
	m.sweep(now)
	steps := make([]step, len(charges))

	// Evaluate them in order. All that are not late are logged with the latest time at which one may pass.
	at, admitted := now, true
	for i := range charges {
		s := &steps[i]
		s.params, s.log = ps[i], m.log(name{charges[i].Subject, charges[i].Policy})
		s.evaluate(steps[:i], now)
		if !s.shadow {
			admitted = admitted && s.allowed
			if s.allowed && !s.late {
				at = max(at, s.ready)
			}
		}
	}

	for i := range steps {
		s := &steps[i]
		r := gcra.Result{Allowed: s.allowed, Never: s.cost > s.count, RetryAfter: s.retryAfter}

		if admitted && s.allowed && s.cost > 0 {
			loggedAt := max(at, s.ready, s.log.newest()) // rule 1 of log
			s.log.add(loggedAt, s.cost, now-s.per)
			s.log.expires = max(s.log.expires, loggedAt+s.per)
			s.newest, s.used, r.Taken = loggedAt, s.used+s.cost, s.cost
			if !s.late {
				r.Delay = loggedAt - now
			}
		}

		r.Remaining, r.ResetAfter = max(s.count-s.used, 0), s.resetAfter(now)
		charges[i].Result = r
	}
	return admitted, nil
}

// Refund implements [gcra.Store]. It removes the newest units.
func (m *Memory) Refund(ctx context.Context, charges []gcra.Charge) error {
	ps, err := paramsOf(ctx, charges, true)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()

	now := m.now()
	m.sweep(now)
	for i := range charges {
		n := name{charges[i].Subject, charges[i].Policy}
		s := step{params: ps[i], log: m.log(n)}
		_, used := s.log.window(now - s.per)
		s.used = max(used-s.cost, 0)
		if s.used == 0 { // rule 2 of log
			delete(m.logs, n)
		} else {
			s.log.remove(s.cost)
			s.newest = s.log.newest()
		}

		charges[i].Result = gcra.Result{Allowed: true, Remaining: max(s.count-s.used, 0), ResetAfter: s.resetAfter(now)}
	}
	return nil
}

func (m *Memory) now() time.Duration {
	if m.clock != nil {
		return time.Duration(m.clock().UnixNano())
	}
	return time.Since(start)
}

var start = time.Now()

// log returns the log of a name, which may be new.
func (m *Memory) log(n name) *log {
	l := m.logs[n]
	if l == nil {
		l = new(log)
		m.logs[n] = l
	}
	return l
}

// sweep deletes the logs that have expired, once there are twice as many as after the last time.
func (m *Memory) sweep(now time.Duration) {
	if len(m.logs) < m.sweepAt {
		return
	}
	if m.logs == nil {
		m.logs = make(map[name]*log)
	}
	maps.DeleteFunc(m.logs, func(_ name, l *log) bool { return l.expires <= now })
	m.sweepAt = max(2*len(m.logs), 64)
}

// step is the decision about one charge. take.lua has the same names.
type step struct {
	params
	log        *log
	used       int64         // units in the window
	newest     time.Duration // time of the newest unit
	ready      time.Duration // when the charge may pass
	allowed    bool
	retryAfter time.Duration
}

// evaluate decides by the log and by the earlier steps of the admission.
func (s *step) evaluate(earlier []step, now time.Duration) {
	l := s.log
	if s.cost > 0 && s.cost <= s.count && !s.late { // rule 3 of log
		l.clamp(now + s.maxDelay)
	}

	first, logged := l.window(now - s.per)
	pending := int64(0) // units that earlier steps take from the same log
	for i := range earlier {
		if e := &earlier[i]; e.log == l && e.allowed {
			pending += e.cost
		}
	}

	s.used, s.newest, s.ready = logged+pending, l.newest(), now
	if s.late {
		s.cost, s.ready = min(s.cost, max(s.count-s.used, 0)), max(now, s.newest)
	} else { // as it would be brought down
		s.newest = min(s.newest, now+s.maxDelay)
	}

	switch {
	case s.cost > s.count:
		s.allowed = false
	case s.cost == 0 || s.late:
		s.allowed = true
	case pending+s.cost > s.count: // the admission itself fills the window
		s.retryAfter = s.per
	default:
		s.ready = max(now, s.newest) // first come, first served
		if leave := logged + pending + s.cost - s.count; leave > 0 {
			s.ready = max(s.ready, l.holder(first, leave).at+s.per)
		}
		s.allowed = s.ready-now <= s.wait
		if !s.allowed {
			s.retryAfter = s.ready - now - s.wait
		}
	}

	if pending > 0 {
		s.newest = max(s.newest, now)
	}
}

// resetAfter returns the time until the window is empty.
func (s *step) resetAfter(now time.Duration) time.Duration {
	if s.used == 0 {
		return 0
	}
	return max(s.newest+s.per-now, 0)
}

// never is earlier than any time, and adding a duration to it does not overflow.
const never time.Duration = math.MinInt64 / 2

func (l *log) newest() time.Duration {
	if len(l.charges) == 0 {
		return never
	}
	return l.charges[len(l.charges)-1].at
}

// start returns the number of the first unit of charge i.
func (l *log) start(i int) int64 {
	if i == 0 {
		return l.first
	}
	return l.charges[i-1].stop
}

// window returns the index of the first charge after a time, and the number of units
// from it on.
func (l *log) window(after time.Duration) (first int, units int64) {
	first = sort.Search(len(l.charges), func(i int) bool { return l.charges[i].at > after })
	return first, l.start(len(l.charges)) - l.start(first)
}

// holder returns the charge that has the n-th unit from charge first on.
func (l *log) holder(first int, n int64) charge {
	n += l.start(first)
	return l.charges[sort.Search(len(l.charges), func(i int) bool { return l.charges[i].stop >= n })]
}

// clamp repairs a log after the clock has gone back.
func (l *log) clamp(latest time.Duration) {
	for i := len(l.charges) - 1; i >= 0 && l.charges[i].at > latest; i-- {
		l.charges[i].at = latest
	}
}

// add logs n units and deletes the charges until the time given.
func (l *log) add(at time.Duration, n int64, until time.Duration) {
	first, _ := l.window(until)
	newest := charge{at, l.start(len(l.charges)) + n}
	l.first = l.start(first)
	l.charges = append(l.charges[first:], newest)
}

// remove deletes the newest n units.
func (l *log) remove(n int64) {
	stop := l.start(len(l.charges)) - n
	last := sort.Search(len(l.charges), func(i int) bool { return l.charges[i].stop >= stop })
	l.charges = l.charges[:last+1]
	l.charges[last].stop = stop
}
