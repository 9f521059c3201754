package replay

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// A meter finds the limits that the subjects of a policy need, under one limit.
//
// It counts every request as if allowed, in a bucket without a bottom that refills at the
// limit's rate. The deepest debt of a subject is the burst that it needs. With this burst
// or a larger one, at this rate, the policy denies it nothing. With a smaller one it denies
// something, unless another policy has denied a request before. Both follow from the step
// in package gcra: a denial does not change the TAT, so denied requests can only make room
// for later ones.
//
// It also counts the units of a subject in each period of the clock, such as a minute of
// "100 a minute", for a limit with another rate. A subject that used at most W in any
// period has used at most W·(D/Per + 2) in any interval D, as the interval touches at most
// D/Per + 2 periods. So W per period, or slightly more, with a burst of 2·W denies it
// nothing.
type meter struct {
	limit        gcra.Limit
	delay        int64 // ticks, the MaxDelay of the policy
	interval     int64 // ticks between two units; 0 for a quota, which has periods alone
	maxCost      int64 // cost of a request
	subjectsLeft *int  // that all meters together may still add
	dropped      int64 // requests of subjects beyond the room

	deepest, busiest leader

	index  []uint32 // open addressing: 0, or 1 + the number of the subject
	chunks [][]subject
	count  int
}

// subject is the state of one subject: 40 bytes, and about 6 of the index.
type subject struct {
	hash   uint64
	full   int64  // ticks since 1970, when the bucket is full
	debt   int64  // ticks, the most that full was ahead of the clock
	period uint32 // number of its last period
	used   uint32 // units in that period
	most   uint32 // units in any period
	denied bool
}

// leader is the subject with the highest value. Other names are not kept.
type leader struct {
	name  string
	value int64
}

func (l *leader) offer(name string, value int64) {
	if value > l.value {
		*l = leader{name, value}
	}
}

const (
	maxSubjects = 1 << 20 // of all meters together
	chunkSize   = 1 << 10 // subjects
	maxDebt     = 1 << 61 // ticks
)

// tick is the unit of time in package gcra.
const tick = 100 * time.Nanosecond

func newMeter(l gcra.Limit, maxDelay time.Duration, room *int) *meter {
	return &meter{limit: l, delay: int64(maxDelay / tick), interval: int64(l.Interval() / tick), subjectsLeft: room, index: make([]uint32, 64)}
}

// add counts a request at a time in microseconds since 1970.
func (m *meter) add(name string, hash uint64, at, cost int64, denied bool) {
	s := m.find(hash)
	if s == nil {
		m.dropped++
		return
	}

	s.denied = s.denied || denied
	if cost == 0 {
		return // a peek
	}
	m.maxCost = max(m.maxCost, cost)

	now := at * int64(time.Microsecond/tick)
	if m.interval > 0 {
		s.full = max(s.full, now) + m.interval*min(cost, maxDebt/m.interval)
		s.full = min(s.full, now+maxDebt)
		s.debt = max(s.debt, s.full-now)
		m.deepest.offer(name, s.debt)
	}

	period := m.period(at)
	if period != s.period {
		s.period, s.used = period, 0
	}
	s.used = uint32(min(int64(s.used)+min(cost, math.MaxUint32), math.MaxUint32))
	s.most = max(s.most, s.used)
	m.busiest.offer(name, int64(s.most))
}

// period is the number of a period; for a quota it is the minute in which the period ends.
func (m *meter) period(at int64) uint32 {
	if !m.limit.IsQuota() {
		return uint32(at / max(m.limit.Per.Microseconds(), 1))
	}
	_, end := m.limit.Calendar().Period(time.UnixMicro(at))
	return uint32(end.Unix() / 60)
}

// find returns the subject of the hash, a new one if needed, or nil if there is no room.
func (m *meter) find(hash uint64) *subject {
	mask := uint64(len(m.index) - 1)

	i := hash & mask
	for ; m.index[i] != 0; i = (i + 1) & mask {
		if s := m.at(int(m.index[i] - 1)); s.hash == hash {
			return s
		}
	}

	if *m.subjectsLeft == 0 {
		return nil
	}
	*m.subjectsLeft--
	if m.count%chunkSize == 0 {
		m.chunks = append(m.chunks, make([]subject, chunkSize))
	}
	m.count++
	m.index[i] = uint32(m.count)
	s := m.at(m.count - 1)
	s.hash = hash

	if m.count > len(m.index)*3/4 {
		m.grow()
	}
	return s
}

func (m *meter) at(i int) *subject { return &m.chunks[i/chunkSize][i%chunkSize] }

func (m *meter) grow() {
	m.index = make([]uint32, 2*len(m.index))
	mask := uint64(len(m.index) - 1)
	for n := range m.count {
		i := m.at(n).hash & mask
		for m.index[i] != 0 {
			i = (i + 1) & mask
		}
		m.index[i] = uint32(n + 1)
	}
}

// summary is the result of a meter.
type summary struct {
	limit    gcra.Limit
	subjects int
	denied   int     // subjects that were denied something
	dropped  int64   // requests of further subjects
	most     []int64 // units in the busiest period of each subject, ascending
	bursts   []int64 // that each subject needs at the limit's rate, ascending

	deepest, busiest string // the subjects of the last of bursts, and of most

	suggested suggestions // for the share of -at-most
	butOne    suggestions // if that is less than one subject: to deny only one
}

// suggestions are limits that deny few subjects something: one at the present rate, and one
// at its own.
type suggestions struct{ sameRate, ownRate suggestion }

// list returns the limits that are valid.
func (s suggestions) list() []suggestion {
	return slices.DeleteFunc([]suggestion{s.sameRate, s.ownRate}, func(s suggestion) bool { return s.limit.Validate() != nil })
}

// suggestion is a limit, and the most subjects that it would have denied something.
type suggestion struct {
	limit   gcra.Limit
	denied  int
	subject string // the one, if it is only one
}

// summarize sums up. share is the part of subjects, 0 to 1, that a suggested limit may deny
// something.
func (m *meter) summarize(share float64) summary {
	f := summary{limit: m.limit, subjects: m.count, dropped: m.dropped, deepest: m.deepest.name, busiest: m.busiest.name}
	f.most, f.bursts = make([]int64, m.count), make([]int64, m.count)
	for n := range m.count {
		s := m.at(n)
		if s.denied {
			f.denied++
		}
		f.most[n] = int64(s.most)
		// A delay covers part of the debt, but never a cost above the burst.
		if m.interval > 0 {
			f.bursts[n] = max((s.debt-m.delay+m.interval-1)/m.interval, min(s.debt/m.interval, m.maxCost))
		}
	}

	slices.Sort(f.most)
	slices.Sort(f.bursts)
	if m.count == 0 {
		return f
	}

	few := int(share * float64(m.count))
	f.suggested = f.suggest(few)
	if few == 0 && share > 0 {
		f.butOne = f.suggest(1)
	}
	return f
}

// suggest returns limits for all subjects but the given number of those with the highest
// needs.
func (f *summary) suggest(but int) suggestions {
	last := f.subjects - 1 - min(but, f.subjects-1)
	burst, most := max(f.bursts[last], 1), max(f.most[last], 1)

	if f.limit.IsQuota() {
		s := suggestion{limit: gcra.Quota(most, f.limit.Calendar()), denied: above(f.most, most)}
		if s.denied == 1 {
			s.subject = f.busiest
		}
		return suggestions{ownRate: s}
	}

	s := suggestions{
		suggestion{limit: f.limit.WithBurst(burst), denied: above(f.bursts, burst)},
		suggestion{limit: atLeast(most, f.limit.Per).WithBurst(2 * most), denied: above(f.most, most)},
	}

	if s.sameRate.denied == 1 {
		s.sameRate.subject = f.deepest
	}
	if s.ownRate.denied == 1 {
		s.ownRate.subject = f.busiest
	}
	return s
}

// atLeast returns a limit of n units per period, or slightly more if the interval between
// units would be rounded up to whole ticks: over a day that adds up.
func atLeast(n int64, per time.Duration) gcra.Limit {
	l := gcra.Limit{Count: n, Per: per}
	if interval := int64(per/tick) / n; interval > 0 {
		l.Count = (int64(per/tick) + interval - 1) / interval
	}
	return l
}

// above returns the number of sorted values greater than v.
func above(sorted []int64, v int64) int {
	i, _ := slices.BinarySearch(sorted, v+1)
	return len(sorted) - i
}

func (s suggestion) String() string {
	l := s.limit
	if l.Burst == l.Count {
		l.Burst = 0 // the same, and shorter
	}
	return fmt.Sprint(l)
}

// percentile returns the smallest of the sorted values that p percent of them do not exceed
// (nearest rank).
func percentile(sorted []int64, p float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
