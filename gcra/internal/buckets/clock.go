package buckets

import (
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A Clock tells the time in ticks, on two scales:
//
//  1. Now is the scale of TATs: since [tat.Epoch] by a source, or since the Clock was made by
//     the monotonic clock of the process.
//  2. Calendar says which period of a quota is current: since [tat.Epoch] by the wall clock or,
//     after Learn, by the clock of a server.
//
// The TAT of a quota is the end of its period, and what was used, on the scale of Now (see
// OnScale). So it stays where it is when the calendar is set, in one table with the others.
type Clock struct {
	source  func() time.Time // nil for the monotonic clock
	start   time.Time
	epoch   atomic.Int64 // when Now was 0, in ticks since tat.Epoch, on the scale of TATs
	quotas  atomic.Bool  // a quota was prepared
	learned atomic.Bool
	offset  atomic.Int64 // if learned: the calendar's time less Now
	ahead   atomic.Int64 // if learned: the calendar is ahead of the server's clock by at most that much
}

// NewClock returns a clock on source, or on the monotonic clock if source is nil.
func NewClock(source func() time.Time) *Clock {
	c := &Clock{source: source, start: time.Now()}
	if source == nil {
		c.epoch.Store(tat.At(c.start))
	}
	return c
}

// Now is the time in ticks.
func (c *Clock) Now() int64 {
	if c.source == nil {
		return tat.Ticks(time.Since(c.start))
	}
	return tat.At(c.source())
}

// Time is the time at which Now will be t, by the clock of the process.
func (c *Clock) Time(t int64) time.Time { return time.Now().Add(tat.Duration(t - c.Now())) }

// Calendar is the time now by the calendar, in ticks since [tat.Epoch]. Before the first quota
// nobody asks for it, and it follows Now, so that setting the wall clock changes nothing.
func (c *Clock) Calendar(now int64) int64 {
	switch {
	case c.learned.Load():
		return now + c.offset.Load()
	case c.source == nil && c.quotas.Load():
		// The monotonic clock stands still while the machine sleeps.
		return tat.At(time.Now())
	}
	return now + c.epoch.Load()
}

// Learn sets the calendar to a server's clock: at the time now it was this. If the wall
// clock was wrong by more than a minute, the first call also sets the scale: one that is
// wrong by years would lapse all. A shorter move of the scale gains nothing, and each
// microsecond of it would count as ten units of the quotas that are kept already.
func (c *Clock) Learn(server, now int64) {
	epoch := server - now
	c.offset.Store(epoch)
	c.ahead.Store(c.Now() - now)
	// Only the first answer may move the scale: TATs of quotas are kept on it.
	if c.learned.Load() || !c.learned.CompareAndSwap(false, true) {
		return
	}
	if off := tat.Duration(epoch - c.epoch.Load()); off.Abs() > time.Minute {
		c.epoch.Store(epoch)
	}
}

// Ahead is how far Calendar may be ahead of the server's clock: the time of the call by
// which that was learned.
func (c *Clock) Ahead() int64 { return c.ahead.Load() }

// OnScale is a time in ticks since [tat.Epoch] on the scale of Now.
func (c *Clock) OnScale(epochTicks int64) int64 { return epochTicks - c.epoch.Load() }

// lapsed is the time before which TATs have lapsed: now or, if that is behind, the time by the
// calendar, by which the quotas of the current period have not lapsed.
func (c *Clock) lapsed(now, calendar int64) int64 { return min(now, c.OnScale(calendar)) }
