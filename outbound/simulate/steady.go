package main

import (
	"math/rand/v2"
	"time"
)

// steady is a client that knows the rate of the limit and how many clients there are, and no more. It
// sends its part in equal intervals, and moves to another moment of the interval after a denial. What
// steady cannot do in a world, no client that learns these numbers can be expected to do.
type steady struct {
	fixed
	interval time.Duration
	random   *rand.Rand
	next     time.Time
}

func newSteady(w *world, random *rand.Rand) strategy {
	return &steady{interval: w.limit.Interval() * time.Duration(w.clients), random: random}
}

func (s *steady) sleep(now time.Time, t *thread) time.Duration {
	first := s.next.IsZero()
	if first {
		s.next = now
	}
	if first || t.denied {
		s.next = s.next.Add(time.Duration(s.random.Float64() * float64(s.interval)))
	}
	s.next = s.next.Add(s.interval)
	if s.next.Before(now) {
		s.next = now
	}
	return s.next.Sub(now)
}

func (*steady) answered(time.Time, *thread, answer) {}
