package send

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/test/race"
)

// Fifty servers share a Redis, half of them from a time on at which it is busy. Its capacity is the checks a second that it
// can decide one by one. However much it has to do, requests wait hardly longer than with two batches in flight; a server
// alone waits less.
func TestPace(t *testing.T) {
	race.Skip(t)
	for _, row := range []struct {
		servers  int
		distance time.Duration
		load     float64 // of the capacity
		most     float64 // the 99th percentile, to two in flight
	}{
		{50, time.Millisecond, 0.9, 1.05},
		{50, time.Millisecond, 1.5, 1.05},
		{50, 5 * time.Millisecond, 0.3, 0.9},
		{50, 5 * time.Millisecond, 0.9, 1.05},
		{50, 5 * time.Millisecond, 1.5, 1.05},
		{1, time.Millisecond, 0.3, 0.75},
		{1, 5 * time.Millisecond, 0.3, 0.6},
		{1, 100 * time.Microsecond, 0.3, 1.05},
	} {
		var p99 [2]int64
		for i, paced := range []bool{false, true} {
			w := newPacedWorld(row.servers, row.load, paced, func(int64) time.Duration { return row.distance })
			w.run(20 * time.Second)
			w.took = nil
			w.run(23 * time.Second)
			_, p99[i] = w.percentiles()
		}
		if ratio := float64(p99[1]) / float64(p99[0]); ratio > row.most {
			t.Errorf("%d servers, %v away, load %.1f: the 99th percentile is %v, and %v with two in flight: %.2f; want at most %.2f",
				row.servers, row.distance, row.load, tat.Duration(p99[1]), tat.Duration(p99[0]), ratio, row.most)
		}
	}
}

// Redis moves from 1 to 10 ms away and back. Twenty seconds after each move the median is a little more than the distance.
func TestPaceAfterAFailover(t *testing.T) {
	w := newPacedWorld(1, 0.2, true, func(now int64) time.Duration {
		if now > tat.Ticks(10*time.Second) && now < tat.Ticks(40*time.Second) {
			return 10 * time.Millisecond
		}
		return time.Millisecond
	})
	for _, part := range []struct {
		until time.Duration
		most  time.Duration // 0: not judged
	}{
		{5 * time.Second, 0}, {10 * time.Second, 1400 * time.Microsecond},
		{30 * time.Second, 0}, {40 * time.Second, 11 * time.Millisecond},
		{42 * time.Second, 0}, {50 * time.Second, 1400 * time.Microsecond},
	} {
		w.took = nil
		w.run(part.until)
		if p50, _ := w.percentiles(); part.most > 0 && tat.Duration(p50) > part.most {
			t.Errorf("until %v the median is %v; want at most %v", part.until, tat.Duration(p50), part.most)
		}
	}
}

// A pacedWorld is servers and a Redis that takes one batch at a time, in virtual time.
type pacedWorld struct {
	paced    bool
	distance func(now int64) time.Duration
	gap      float64 // between two requests of a server
	chance   *rand.Rand
	events   pacedEvents
	busy     int64 // Redis, until then
	took     []int64
}

type pacedServer struct {
	pace     pace
	waiting  []int64 // when each request came
	inFlight int
}

// A pacedEvent is a request or, with a batch, its answer.
type pacedEvent struct {
	at     int64
	server *pacedServer
	sent   int64
	batch  []int64
}

const (
	callCost  = int64(30 * time.Microsecond / tat.Tick)
	checkCost = int64(4 * time.Microsecond / tat.Tick)
)

func newPacedWorld(servers int, load float64, paced bool, distance func(int64) time.Duration) *pacedWorld {
	w := &pacedWorld{paced: paced, distance: distance, chance: rand.New(rand.NewPCG(1, 2))}
	w.gap = float64(callCost+checkCost) * float64(servers) / load
	for i := range servers {
		begin := tat.Ticks(10*time.Second) * int64(i%2)
		heap.Push(&w.events, pacedEvent{at: begin + w.random(w.gap), server: &pacedServer{pace: pace{window: minWindow, most: maxWindow}}})
	}
	return w
}

func (w *pacedWorld) random(mean float64) int64 { return int64(w.chance.ExpFloat64() * mean) }

func (w *pacedWorld) run(until time.Duration) {
	for w.events[0].at < tat.Ticks(until) {
		e := heap.Pop(&w.events).(pacedEvent)
		s := e.server
		if e.batch == nil {
			s.waiting = append(s.waiting, e.at)
			heap.Push(&w.events, pacedEvent{at: e.at + w.random(w.gap), server: s})
		} else {
			s.inFlight--
			for _, came := range e.batch {
				w.took = append(w.took, e.at-came)
			}
			if w.paced {
				s.pace.answered(e.at, e.at-e.sent, nil)
			}
		}
		if len(s.waiting) > 0 && s.pace.may(e.at, s.inFlight) {
			w.leave(s, e.at)
		}
	}
}

// leave sends all that wait. An answer is a little late in any case, and one in a hundred by a millisecond.
func (w *pacedWorld) leave(s *pacedServer, now int64) {
	way := tat.Ticks(w.distance(now)) / 2
	late := w.random(float64(tat.Ticks(15 * time.Microsecond)))
	if w.chance.IntN(100) == 0 {
		late += w.random(float64(tat.Ticks(time.Millisecond)))
	}
	w.busy = max(w.busy, now+way) + callCost + checkCost*int64(len(s.waiting))
	heap.Push(&w.events, pacedEvent{w.busy + way + late, s, now, s.waiting})
	s.pace.left, s.waiting = now, nil
	s.inFlight++
}

func (w *pacedWorld) percentiles() (p50, p99 int64) {
	slices.Sort(w.took)
	return w.took[len(w.took)/2], w.took[len(w.took)*99/100]
}

type pacedEvents []pacedEvent

func (e pacedEvents) Len() int           { return len(e) }
func (e pacedEvents) Less(i, j int) bool { return e[i].at < e[j].at }
func (e pacedEvents) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *pacedEvents) Push(x any)        { *e = append(*e, x.(pacedEvent)) }
func (e *pacedEvents) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}
