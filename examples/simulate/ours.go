package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/pacer"
)

// adaptive is the pacer of httpclient.Adaptive, which is all of it but the
// network and the clock.
type adaptive struct{ pacer *pacer.Pacer }

func newAdaptive(start time.Duration, random *rand.Rand) *adaptive {
	return &adaptive{&pacer.Pacer{Start: start, Rand: random.Float64}}
}

func (s *adaptive) sleep(now time.Time, _ *thread) time.Duration { return s.pacer.Next(now) }
func (s *adaptive) again(now time.Time) time.Duration            { return s.pacer.Again(now) }

func (s *adaptive) answered(now time.Time, _ *thread, a answer) {
	s.pacer.Done(now, a.status, a.header)
}

// coordinated takes a slot from a store that all processes share, and sleeps
// until it.
type coordinated struct {
	fixed
	store *bucket
	start time.Duration
}

// patience is longer than any queue of ten.
const patience = time.Hour

func (s *coordinated) sleep(now time.Time, t *thread) time.Duration {
	if !s.store.frozen {
		s.store.now = now
	}
	r, err := gcra.Take(context.Background(), s.store, gcra.Charge{
		Subject: everybody, Policy: policyName, Limit: limit, Cost: 1, MaxDelay: patience,
	})
	if err != nil || !r.Allowed {
		return patience // nothing is left, and nothing comes back
	}
	if t.attempts == 0 {
		return max(s.start, r.Delay)
	}
	return r.Delay
}

func (*coordinated) answered(time.Time, *thread, answer) {}
