package redisstore

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// Prefix begins every key of the store.
func (s *Store) Prefix() string { return s.prefix }

// SetClock sets the clock of the store.
func (s *Store) SetClock(now func() time.Time) {
	s.clock = buckets.NewClock(now)
	s.denials = newDenialCache(s.clock, tat.Duration(s.denials.ttl), &s.reporter.grants)
}

// Reporter is the receiver in the stacks of what reports for the store.
func (s *Store) Reporter() any { return &s.reporter }

// Mark marks the store, as it does itself in the background, and returns when it has the
// count.
func (s *Store) Mark(lasts time.Duration) {
	s.mark(lasts)
}
