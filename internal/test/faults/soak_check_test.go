package faults

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/test/window"
)

// check checks the windows of an episode, and returns the worst excess in bursts.
func (s *soak) check(f soakFault) float64 {
	worst := math.Inf(-1)
	for id, b := range s.client.buckets {
		calls := b.calls[b.checked:]
		b.checked = len(b.calls)
		if len(calls) == 0 {
			continue
		}
		over, allowed := window.Excess(calls, b.limit), b.alone()
		if f.loses && f.store == id.store {
			allowed += burstOf(b.limit)
		}
		if over > float64(allowed)+tolerance {
			s.t.Errorf("%s: %v, %v: %.2f units more than the bound; want at most %d", f.name, id, b.limit, over, allowed)
		}
		worst = max(worst, over/float64(burstOf(b.limit)))
	}

	return worst
}

// tolerance is for keys that Redis expires a millisecond early, in units.
const tolerance = 0.1

// checkAll checks the windows of the whole run: what was granted alone is paid back, so
// many faults may cost no more than one. A loss of data counts as a refund of a burst,
// and so does midnight for a quota.
func (s *soak) checkAll() {
	midnight := s.client.start.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(s.client.start)
	for id, b := range s.client.buckets {
		calls := slices.Clone(b.calls)
		first := slices.MinFunc(calls, func(a, b window.Call) int { return cmp.Compare(a.Begin, b.Begin) }).Begin
		last := slices.MaxFunc(calls, func(a, b window.Call) int { return cmp.Compare(a.End, b.End) }).End
		for _, f := range s.past {
			if f.loses && f.store == id.store && f.end >= first && f.begin <= last {
				calls = append(calls, window.Call{Begin: f.begin, End: f.end, Units: -burstOf(b.limit)})
			}
		}

		if b.limit.IsQuota() {
			calls = append(calls, window.Call{Begin: midnight - time.Second, End: midnight + time.Second, Units: -burstOf(b.limit)})
		}
		over := window.Excess(calls, b.limit)
		s.worst = max(s.worst, over/float64(burstOf(b.limit)))
		if over > float64(b.alone())+tolerance {
			s.t.Errorf("%v, %v, the whole run: %.2f units more than the bound and what was lost; want at most %d", id, b.limit, over, b.alone())
		}
	}
}

// measure records what the servers hold when nothing is under way, the most of the three.
func (s *soak) measure(name string) {
	s.client.transport.CloseIdleConnections()
	var worst footprint
	for _, p := range s.server {
		var least footprint
		for try := range 10 { // connections that were closed, and probes, end soon
			p.Write("footprint")
			var f footprint
			if err := json.Unmarshal([]byte(p.Read()), &f); err != nil {
				s.t.Fatal(err)
			}
			if try == 0 {
				least = f
			}
			least = footprint{min(least.Heap, f.Heap), min(least.RSS, f.RSS), min(least.Goroutines, f.Goroutines), min(least.Files, f.Files)}
			time.Sleep(100 * time.Millisecond)
		}

		worst = footprint{max(worst.Heap, least.Heap), max(worst.RSS, least.RSS), max(worst.Goroutines, least.Goroutines), max(worst.Files, least.Files)}
	}

	s.marks = append(s.marks, mark{name, worst})
	if first := s.marks[0]; !worst.flat(first.footprint) {
		s.t.Errorf("%s: the servers hold %+v; %+v at the start", name, worst, first.footprint)
	}
}
