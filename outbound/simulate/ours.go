package main

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/outbound/internal/pacer"
	"github.com/seed-e377111c/ratelimit/outbound/internal/retryafter"
)

// adaptive is httpclient.Adaptive without network and clock.
type adaptive struct {
	pacer pacer.Pacer
	start time.Duration // the sleep before the first answer
	begun bool          // there was one
}

func newAdaptive(start time.Duration, random *rand.Rand) *adaptive {
	return &adaptive{pacer: pacer.Pacer{Rand: random.Float64}, start: start}
}

func (s *adaptive) sleep(now time.Time, t *thread) time.Duration {
	id, d, _ := s.pacer.Next(now, "", math.MaxInt64)
	t.number = id
	if !s.begun {
		d = max(d, s.start)
	}
	return d
}

func (s *adaptive) again(now time.Time, t *thread) time.Duration {
	if !s.begun {
		return 0
	}
	return s.pacer.Again(now, "", t.number)
}

func (s *adaptive) answered(now time.Time, _ *thread, a answer) {
	s.begun = true
	if got := retryafter.Read(now, a.status, a.header); got.Down {
		s.pacer.Failed(now, got.Wait)
	} else {
		s.pacer.Answered(now, "", got)
	}
}

// coordinated sleeps until a slot that it takes from a store shared by all processes.
type coordinated struct {
	fixed
	store *bucket
	start time.Duration
}

// maxDelay is longer than any queue of ten threads.
const maxDelay = time.Hour

func (s *coordinated) sleep(now time.Time, t *thread) time.Duration {
	if !s.store.frozen {
		s.store.now = now
	}
	r, err := gcra.Take(context.Background(), s.store, gcra.Charge{
		Subject: subject, Policy: policyName, Limit: limit, Cost: 1, MaxDelay: maxDelay, MaxWait: maxDelay,
	})
	if err != nil || !r.Allowed {
		return maxDelay // nothing remains and nothing refills
	}
	if t.attempts == 0 {
		return max(s.start, r.Delay)
	}
	return r.Delay
}

func (*coordinated) answered(time.Time, *thread, answer) {}

// plain is httpclient.Transport without network and clock, for callers that are as patient as it takes.
type plain struct {
	pacer   pacer.Pacer
	random  *rand.Rand
	until   time.Time     // of a pause
	pause   time.Duration // its length
	denials int           // in a row
}

func newPlain(random *rand.Rand) *plain {
	return &plain{pacer: pacer.Pacer{Rand: random.Float64, Longest: 5 * time.Second}, random: random}
}

// sleep is for the pause, or a wait that grows with the denials in a row; after it comes the pace.
func (s *plain) sleep(now time.Time, t *thread) time.Duration {
	if s.denials++; !t.denied {
		s.denials = 0
	}

	t.number = 0
	if left := s.until.Sub(now); left > 0 {
		return left + time.Duration(jitter*s.random.Float64()*float64(s.pause))
	}
	if s.denials == 0 {
		return s.again(now, t)
	}
	wait := min(500*time.Millisecond<<min(s.denials-1, 5), 10*time.Second)
	return wait/2 + time.Duration(s.random.Float64()*float64(wait/2))
}

func (s *plain) again(now time.Time, t *thread) (d time.Duration) {
	if t.number != 0 {
		return s.pacer.Again(now, "", t.number)
	}
	t.number, d, _ = s.pacer.Next(now, "", math.MaxInt64)
	return d
}

func (s *plain) answered(now time.Time, _ *thread, a answer) {
	got := retryafter.Read(now, a.status, a.header)
	if got.Wait > 0 {
		s.pause = min(got.Wait, hour)
		s.until = now.Add(s.pause)
	}
	if got.Wait > 0 || got.Down {
		s.pacer.Over()
	} else {
		s.pacer.Answered(now, "", retryafter.Answer{Denied: got.Denied, Remaining: -1})
	}
}
