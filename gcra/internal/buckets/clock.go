package buckets

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A Clock counts ticks.
type Clock struct {
	source func() time.Time // nil: the monotonic time since start
	start  time.Time
}

// NewClock returns a clock that follows source, or the monotonic clock of the
// process where source is nil.
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
