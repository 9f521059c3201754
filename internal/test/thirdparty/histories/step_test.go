package histories

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// A step is what one charge did to its bucket, whose TAT was ahead of base by least to
// most. The base is now, and for a quota the end of its period: its TAT is that end and
// what was used.
type step struct {
	tat, base   int   // variables
	end         int64 // of the period of a quota, whose base is zero
	least, most int64
	delta       int64 // what the charge has added to the TAT
	inc         int64 // what it wanted to add
	top         int64 // no TAT is further ahead
	reset       int64 // of a quota: how long from now to the end, or -1 if that is not known

	// Of a late charge whose reply is lost: it has taken as many units, of unit ticks, as fit
	// below room.
	unit, room int64
}

// stepOf is the step that explains the result of a charge. It reports false for a result
// that contradicts itself or the algorithm.
func stepOf(o *operation, c *gcra.Charge) (s step, possible bool) {
	t, r := max(ticks(c.Limit.Interval()), 1), c.Result
	capacity := c.Limit.Capacity() * t
	room, after := capacity+ticks(min(c.MaxWait, c.MaxDelay)), ticks(r.ResetAfter)
	s = step{tat: firstTAT + policyOf[c.Policy], base: now, inc: max(c.Cost, 1) * t, top: capacity + max(ticks(c.MaxDelay), c.MaxDebt*t), reset: -1}
	late := c.Late && o.Kind == take
	switch {
	case c.Peek:
		s.inc = 0
	case o.Kind == refund:
		s.inc = -s.inc
	case late:
		room = capacity + c.MaxDebt*t
	}

	if late || o.Kind == refund {
		s.top = capacity + ticks(gcra.MaxDelay)
	}

	if c.Limit.IsQuota() {
		_, end := c.Limit.Calendar().Period(timeAt(o.Call))
		s.base, s.end, s.top = zero, ticksAt(end), unbounded/4
		if !o.Lost {
			after, s.reset = c.Limit.Count-r.Remaining, ticks(r.ResetAfter)
		}
	}

	switch {
	case late && o.Lost:
		s.unit, s.room = t, room
	case late && o.Allowed:
		s.delta = r.Taken * t
	case o.Lost || o.Allowed:
		s.delta = s.inc
	}

	switch {
	case o.Lost && late:
		s.most = s.top
	case o.Lost && s.inc > 0:
		s.most = room - s.inc
	case o.Lost:
		s.most = s.top
	default:
		s.least, s.most = after-s.delta, after-s.delta
		if after == 0 && s.delta < 0 {
			s.least = 0 // less was used than was refunded
		}

		if c.Limit.IsQuota() && r.Remaining == 0 {
			s.most = s.top // it may be overdrawn
			if late && s.delta > 0 {
				s.most = room - s.delta
			}
			if late && s.delta > 0 && s.delta < s.inc {
				s.least = s.most // all the room was taken
			}
		}
	}

	if o.Lost {
		return s, true
	}

	want := gcra.Result{Allowed: s.inc <= 0 || late || s.least+s.inc <= room, Remaining: max(capacity-after, 0) / t, ResetAfter: r.ResetAfter}
	if o.Allowed && s.inc > 0 {
		want.Taken = s.inc / t
	}

	if o.Allowed && late {
		want.Taken = min(want.Taken, max(room-s.least, 0)/t)
		if c.Limit.IsQuota() && r.Taken == 0 && r.Remaining == 0 {
			want.Taken = 0 // how much it was overdrawn before is not known
		}
	}

	switch {
	case !want.Allowed && c.Limit.IsQuota():
		want.RetryAfter = r.ResetAfter
	case !want.Allowed:
		want.RetryAfter = time.Duration(s.least+s.inc-room) * tick
	case o.Allowed && s.inc > 0 && !late && !c.Limit.IsQuota():
		want.Delay = time.Duration(max(after-capacity, 0)) * tick
	}

	return s, s.least >= 0 && r == want
}

// apply returns the zones that follow.
func (s step) apply(z zone) (next []zone) {
	if s.unit > 0 { // each number of units has its own range of levels
		for taken := int64(0); taken <= s.inc; taken += s.unit {
			some := s
			some.unit, some.delta, some.most = 0, taken, min(s.room-taken, s.top)
			if taken < s.inc {
				some.least = max(s.room-taken-s.unit+1, 0)
			}
			if taken == 0 {
				some.most = s.top
			}
			if some.least <= some.most {
				next = append(next, some.apply(z)...)
			}
		}

		return next
	}

	if s.reset >= 0 {
		var some bool
		if z, some = z.within(now, zero, s.end-s.reset, s.end-s.reset); !some {
			return nil
		}
	}

	// The bucket was full.
	if full, some := z.with(s.tat, s.base, s.end); some && s.least <= 0 {
		full.set(s.tat, s.base, s.end+max(s.delta, 0))
		next = append(next, full)
	}

	// It was not, and a refund fills it.
	least := max(s.least, 1)
	if filled, some := z.within(s.tat, s.base, s.end+least, s.end+min(s.most, -s.delta)); some && least <= -s.delta {
		filled.set(s.tat, s.base, s.end)
		next = append(next, filled)
		least = 1 - s.delta
	}

	// It was not full, nor is it after a refund.
	if rest, some := z.within(s.tat, s.base, s.end+least, s.end+min(s.most, s.top)); some {
		rest.add(s.tat, s.delta)
		next = append(next, rest)
	}

	// The TAT was beyond the clamp: a peek leaves it there.
	if beyond, some := z.with(s.base, s.tat, -s.end-s.top-1); some && s.least <= s.top && s.top <= s.most {
		if s.inc != 0 {
			beyond.set(s.tat, s.base, s.end+max(s.top+s.delta, 0))
		}
		next = append(next, beyond)
	}

	return next
}
