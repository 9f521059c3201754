package buckets

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A Clock tells the time in ticks: since [tat.Epoch] by a source, or since the Clock
// was made by the monotonic clock of the process.
type Clock struct {
	source func() time.Time // nil for the monotonic clock
	start  time.Time
}

// NewClock returns a clock on source, or on the monotonic clock if source is nil.
func NewClock(source func() time.Time) *Clock {
	return &Clock{source: source, start: time.Now()}
}

// Now is the time in ticks.
func (c *Clock) Now() int64 {
	if c.source == nil {
		return tat.Ticks(time.Since(c.start))
	}
	return tat.At(c.source())
}
