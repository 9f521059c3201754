package main

import (
	"time"
)

// The strategies of the published comparison (R. Schneeman's rate_throttle_client), as in
// its code. The threads of a process share the sleep value. A denied thread continues with
// a copy of it, which becomes the shared value when it succeeds.

// fixed is part of strategies that do not change a sleep after it has begun.
type fixed struct{}

func (fixed) again(time.Time, *thread) time.Duration { return 0 }

// none does not sleep.
type none struct{ fixed }

func (none) sleep(time.Time, *thread) time.Duration { return 0 }
func (none) answered(time.Time, *thread, answer)    {}

// backoff sleeps only after a denial: minSleep, and factor times longer after each further
// denial. A success ends it.
type backoff struct {
	fixed
	factor float64
}

func (b backoff) sleep(_ time.Time, t *thread) time.Duration {
	if !t.denied {
		t.local = minSleep
		return 0
	}
	d := t.local
	t.local *= b.factor
	return seconds(d)
}

func (backoff) answered(time.Time, *thread, answer) {}

// increase sleeps its value before each request. A denial adds min to it, and after that
// sleep it grows by a factor of 1.2. decrease returns how much a success takes off.
type increase struct {
	fixed
	value    float64 // seconds
	min      float64 // seconds
	decrease func(value float64, remaining int64) float64
}

func (s *increase) sleep(_ time.Time, t *thread) time.Duration {
	if !t.denied {
		t.local = s.value
		return seconds(t.local)
	}
	t.local += s.min
	d := t.local
	t.local *= 1.2
	return seconds(d)
}

func (s *increase) answered(_ time.Time, t *thread, a answer) {
	if !a.denied {
		s.value = max(0, t.local-s.decrease(t.local, a.remaining))
	}
}

func gradual(float64, int64) float64              { return minSleep }
func proportional(value float64, _ int64) float64 { return value / float64(limit.Count) }
func remaining(value float64, left int64) float64 {
	return value * float64(left) / float64(limit.Count)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
