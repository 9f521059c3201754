package main

import "time"

// The strategies of the published comparison (R. Schneeman's
// rate_throttle_client), as its code has them: the sleep value is shared by the
// threads of a process; a thread that is refused goes on with a copy of it,
// which becomes the shared one when it succeeds.

// fixed is of strategies that sleep what they have decided to.
type fixed struct{}

func (fixed) again(time.Time) time.Duration { return 0 }

// none asks without pause.
type none struct{ fixed }

func (none) sleep(time.Time, *thread) time.Duration { return 0 }
func (none) answered(time.Time, *thread, answer)    {}

// backoff sleeps nothing until refused, then minSleep, and factor times longer
// after each refusal; success makes it forget.
type backoff struct {
	fixed
	factor float64
}

func (b backoff) sleep(_ time.Time, t *thread) time.Duration {
	if !t.refused {
		t.local = minSleep
		return 0
	}
	d := t.local
	t.local *= b.factor
	return seconds(d)
}

func (backoff) answered(time.Time, *thread, answer) {}

// increase sleeps its value before each request. A refusal adds minSleep, and
// makes it 1.2 times as long once it has been slept; decrease says what success
// makes of it.
type increase struct {
	fixed
	value    float64 // seconds
	decrease func(value float64, remaining int64) float64
}

func (s *increase) sleep(_ time.Time, t *thread) time.Duration {
	if !t.refused {
		t.local = s.value
		return seconds(t.local)
	}
	t.local += minSleep
	d := t.local
	t.local *= 1.2
	return seconds(d)
}

func (s *increase) answered(_ time.Time, t *thread, a answer) {
	if !a.refused {
		s.value = max(0, t.local-s.decrease(t.local, a.remaining))
	}
}

func gradual(float64, int64) float64              { return minSleep }
func proportional(value float64, _ int64) float64 { return value / float64(limit.Count) }
func remaining(value float64, left int64) float64 {
	return value * float64(left) / float64(limit.Count)
}
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
