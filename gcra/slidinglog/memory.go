package slidinglog

import (
	"context"
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Memory is a [gcra.Store] that keeps its logs in this process. The zero value
// is ready to use.
//
// It holds every key that was charged within its window: as much memory as
// subjects come by. That suits partners, who are few. Facing the public,
// [gcra.Memory] is bounded.
type Memory struct {
	// Now is the clock; nil means the time that has passed since first use,
	// which setting the wall clock does not disturb. Set it before first use.
	Now func() time.Time

	mu    sync.Mutex
	start time.Time
	logs  map[name]*log
	sweep int // how many logs there are when those that have lapsed are next dropped
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return new(Memory) }

type name struct{ subject, policy string }

// log is what the sorted set is in Redis.
type log struct {
	charges []charge      // by time; some of the oldest may have left the window
	before  int64         // number of the first unit of charges[0]
	lapses  time.Duration // when the window is empty
}

// charge is units that were logged with one time.
type charge struct {
	at   time.Duration
	stop int64 // the number after that of its last unit
}

// Take implements [gcra.Store].
func (m *Memory) Take(ctx context.Context, charges []gcra.Charge) (allowed bool, err error) {
	ds, err := m.open(ctx, charges, false)
	if err != nil || len(charges) == 0 {
		return err == nil, err
	}
	defer m.mu.Unlock()
	now := m.now()
	plans := make([]plan, len(charges))
	at, admitted := now, true
	for i := range charges {
		p := &plans[i]
		p.demand, p.name = ds[i], name{charges[i].Subject, charges[i].Policy}
		p.log = m.log(plans[:i], p.name)
		p.decide(plans[:i], now)
		if !p.shadow {
			admitted = admitted && p.allowed
			if p.allowed {
				at = max(at, p.ready)
			}
		}
	}
	for i := range plans {
		p := &plans[i]
		r := gcra.Result{Allowed: p.allowed, Never: p.cost > p.count, RetryAfter: p.retry}
		if admitted && p.allowed && p.cost > 0 {
			place := max(at, p.ready, p.log.newest())
			p.log.add(place, p.cost, now-p.per)
			p.log.lapses = max(p.log.lapses, place+p.per)
			m.keep(p.name, p.log, now)
			p.newest, p.used, r.Delay = place, p.used+p.cost, place-now
		}
		r.Remaining, r.ResetAfter = max(p.count-p.used, 0), p.reset(now)
		charges[i].Result = r
	}
	return admitted, nil
}

// Refund implements [gcra.Store]. It removes the newest units.
func (m *Memory) Refund(ctx context.Context, charges []gcra.Charge) error {
	ds, err := m.open(ctx, charges, true)
	if err != nil || len(charges) == 0 {
		return err
	}
	defer m.mu.Unlock()
	now := m.now()
	for i := range charges {
		p := plan{demand: ds[i], name: name{charges[i].Subject, charges[i].Policy}}
		p.log = m.log(nil, p.name)
		_, live := p.log.window(now - p.per)
		p.used = max(live-p.cost, 0)
		p.newest = never
		if p.used == 0 {
			delete(m.logs, p.name)
		} else {
			p.log.remove(p.cost)
			p.newest = p.log.newest()
		}
		charges[i].Result = gcra.Result{Allowed: true, Remaining: max(p.count-p.used, 0), ResetAfter: p.reset(now)}
	}
	return nil
}

// open checks the charges and, where there are any, takes the lock.
func (m *Memory) open(ctx context.Context, charges []gcra.Charge, refund bool) ([]demand, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ds, err := demands(charges, refund)
	if err == nil && len(charges) > 0 {
		m.mu.Lock()
	}
	return ds, err
}

func (m *Memory) now() time.Duration {
	if m.Now != nil {
		return time.Duration(m.Now().UnixNano())
	}
	if m.start.IsZero() {
		m.start = time.Now()
	}
	return time.Since(m.start)
}

// log returns the log of a name, which may be that of an earlier plan; one that
// is new is kept once it is charged.
func (m *Memory) log(earlier []plan, n name) *log {
	if l := m.logs[n]; l != nil {
		return l
	}
	for i := range earlier {
		if earlier[i].name == n {
			return earlier[i].log
		}
	}
	return new(log)
}

func (m *Memory) keep(n name, l *log, now time.Duration) {
	if m.logs[n] != nil {
		return
	}
	if len(m.logs) >= m.sweep {
		for old, l := range m.logs {
			if l.lapses <= now {
				delete(m.logs, old)
			}
		}
		m.sweep = max(2*len(m.logs), 64)
	}
	if m.logs == nil {
		m.logs = make(map[name]*log)
	}
	m.logs[n] = l
}

// plan is a charge on its way through Take; its names are those of take.lua.
type plan struct {
	demand
	name    name
	log     *log
	used    int64         // units in the window
	newest  time.Duration // time of the newest
	ready   time.Duration // when the charge may pass
	allowed bool
	retry   time.Duration
}

func (p *plan) decide(earlier []plan, now time.Duration) {
	l := p.log
	if p.cost > 0 && p.cost <= p.count {
		l.bringDown(now + p.top)
	}
	first, live := l.window(now - p.per)
	taken := int64(0)
	for i := range earlier {
		if e := &earlier[i]; e.log == l && e.allowed {
			taken += e.cost
		}
	}
	p.used, p.newest, p.ready = live+taken, min(l.newest(), now+p.top), now
	switch {
	case p.cost > p.count:
		p.allowed = false
	case p.cost == 0:
		p.allowed = true
	case taken+p.cost > p.count: // would need what the admission itself takes
		p.retry = p.per
	default:
		p.ready = max(now, p.newest) // first come, first served
		if leave := live + taken + p.cost - p.count; leave > 0 {
			p.ready = max(p.ready, l.holder(first, leave).at+p.per)
		}
		p.allowed = p.ready-now <= p.within
		if !p.allowed {
			p.retry = p.ready - now - p.within
		}
	}
	if taken > 0 {
		p.newest = max(p.newest, now)
	}
}

// reset is how long it takes until the window is empty.
func (p *plan) reset(now time.Duration) time.Duration {
	if p.used == 0 {
		return 0
	}
	return max(p.newest+p.per-now, 0)
}

// never is earlier than any time, and far from where adding to it overflows.
const never time.Duration = math.MinInt64 / 2

func (l *log) newest() time.Duration {
	if len(l.charges) == 0 {
		return never
	}
	return l.charges[len(l.charges)-1].at
}

// start is the number of the first unit of charge i.
func (l *log) start(i int) int64 {
	if i == 0 {
		return l.before
	}
	return l.charges[i-1].stop
}

// window returns the index of the first charge after a time and how many units
// there are from it on.
func (l *log) window(after time.Duration) (first int, live int64) {
	first = sort.Search(len(l.charges), func(i int) bool { return l.charges[i].at > after })
	return first, l.start(len(l.charges)) - l.start(first)
}

// holder returns the charge that has the n-th unit from charge first on.
func (l *log) holder(first int, n int64) charge {
	n += l.start(first)
	return l.charges[sort.Search(len(l.charges), func(i int) bool { return l.charges[i].stop >= n })]
}

// bringDown heals a log whose clock has gone back.
func (l *log) bringDown(top time.Duration) {
	for i := len(l.charges) - 1; i >= 0 && l.charges[i].at > top; i-- {
		l.charges[i].at = top
	}
}

// add logs units and drops the charges that are not after the end given.
func (l *log) add(at time.Duration, n int64, end time.Duration) {
	l.charges = append(l.charges, charge{at, l.start(len(l.charges)) + n})
	first, _ := l.window(end)
	if first > len(l.charges)/2 { // sooner, and each charge would move all others
		l.before = l.start(first)
		l.charges = slices.Delete(l.charges, 0, first)
	}
}

// remove takes back the newest n units.
func (l *log) remove(n int64) {
	stop := l.start(len(l.charges)) - n
	last := sort.Search(len(l.charges), func(i int) bool { return l.charges[i].stop >= stop })
	l.charges = l.charges[:last+1]
	l.charges[last].stop = stop
}
