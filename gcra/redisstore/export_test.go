package redisstore

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
)

// Prefix begins every key of the store.
func (s *Store) Prefix() string { return s.prefix }

// SetClock sets the clock of the store, before it is used.
func (s *Store) SetClock(now func() time.Time) {
	s.compose(buckets.NewClock(now))
}

// Reporter is the receiver in the stacks of what reports for the store.
func (s *Store) Reporter() any { return s.reporter }

// Mark marks the store, as it does itself in the background, and returns when it has the
// count.
func (s *Store) Mark(lasts time.Duration) {
	s.mark(lasts)
}

// Note records the result of a call, as a batch does.
func (s *Store) Note(err error, open bool) { s.health("").note(err, open) }
