package main

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/outbound/internal/pacer"
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

func (s *adaptive) sleep(now time.Time, _ *thread) time.Duration {
	d, _ := s.pacer.Next(now, math.MaxInt64)
	if !s.begun {
		d = max(d, s.start)
	}
	return d
}

func (s *adaptive) again(now time.Time) time.Duration {
	if !s.begun {
		return 0
	}
	return s.pacer.Again(now)
}

func (s *adaptive) answered(now time.Time, _ *thread, a answer) {
	s.begun = true
	s.pacer.Done(now, a.status, a.header)
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
