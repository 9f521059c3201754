package tat

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
	"unique"
)

// Limit has the fields of gcra.Limit, which documents them.
type Limit struct {
	Count    int64
	Per      time.Duration
	Burst    int64
	Calendar unique.Handle[Calendar] // of a quota; zero for a rate
}

// IsQuota reports whether the limit is a quota, and not a rate.
func (l *Limit) IsQuota() bool { return l.Calendar != unique.Handle[Calendar]{} }

// Capacity is the burst, or the count if there is none.
func (l Limit) Capacity() int64 {
	if l.Burst == 0 {
		return l.Count
	}
	return l.Burst
}

// Interval returns T and B·T in ticks, or false for a limit that is not valid.
// T is rounded to the nearest tick; it is at least 10, as a valid rate is at
// most one unit a microsecond. T of a quota is 1.
func (l Limit) Interval() (emission, span int64, ok bool) {
	if l.IsQuota() {
		return 1, l.Count, l.validateQuota() == nil
	}
	if l.Count < 1 || l.Per <= 0 || l.Burst < 0 || l.Count > int64(l.Per/time.Microsecond) {
		return 0, 0, false
	}
	per, n := int64(l.Per), l.Count*Tick
	emission = per / n
	if rest := per - emission*n; rest >= n-rest {
		emission++
	}
	high, low := bits.Mul64(uint64(l.Capacity()), uint64(emission))
	return emission, int64(low), high == 0 && low <= uint64(maxSpan)
}

// Rate is units a second, of a quota on average.
func (l Limit) Rate() float64 {
	per := l.Per
	if l.IsQuota() {
		per = calendarUnits[l.Calendar.Value().Unit].length
	}
	return float64(l.Count) / per.Seconds()
}

// Unlimited is the Count of no limit.
const Unlimited = math.MaxInt64

// Validate returns nil for a valid limit, otherwise an error that names the
// value and what would be right.
func (l Limit) Validate() error {
	if l.IsQuota() {
		return l.validateQuota()
	}
	if _, _, ok := l.Interval(); ok {
		return nil
	}
	switch {
	case l.Count == Unlimited && l.Per == 0:
		return errors.New("only LimitFor and Override may return gcra.Unlimited; want a limit such as 100/minute")
	case l.Count < 1:
		return fmt.Errorf("count is %d; want at least 1", l.Count)
	case l.Per <= 0:
		return fmt.Errorf("period is %v; want more than 0", l.Per)
	case l.Burst < 0:
		return fmt.Errorf("burst is %d; want 0 (same as count) or more", l.Burst)
	case l.Count > int64(l.Per/time.Microsecond):
		return fmt.Errorf("%d per %v is faster than 1,000,000 a second, the fastest that can be kept", l.Count, l.Per)
	default:
		return fmt.Errorf("a burst of %d at %d per %v takes longer than 366 days to refill", l.Capacity(), l.Count, l.Per)
	}
}

func (l Limit) validateQuota() error {
	if _, err := l.Calendar.Value().Periods(); err != nil {
		return err
	}
	unit := l.Calendar.Value().Unit
	switch most := calendarUnits[unit].most; {
	case l.Per != 0:
		return fmt.Errorf("period is %v beside a calendar; want one of them", l.Per)
	case l.Burst != 0:
		return fmt.Errorf("a quota with a burst of %d; want none: all of a quota may pass at once, so add a rate as a second limit", l.Burst)
	case l.Count < 1 || l.Count > most:
		return fmt.Errorf("quota is %d; want 1 to %d in a calendar %s", l.Count, most, unit)
	}
	return nil
}

// A Charge has the fields of gcra.Charge, which documents them, except Result.
type Charge struct {
	Subject  string
	Policy   string
	Limit    Limit
	Cost     int64
	MaxDelay time.Duration
	MaxWait  time.Duration
	Shadow   bool
	Period   time.Time
}

// LimitParams are the parameters that all charges of a limit share, whatever
// they cost.
type LimitParams struct {
	params  Params // Inc is 0
	burst   int64
	Periods *Periods // of a quota; nil for a rate
}

// LimitParams checks all of a charge but its cost, and converts it.
func (c *Charge) LimitParams() (LimitParams, error) {
	emission, span, ok := c.Limit.Interval()
	switch {
	case !ok:
		return LimitParams{}, c.invalid(c.Limit.Validate())
	case c.MaxDelay < 0 || c.MaxDelay > MaxDelay:
		return LimitParams{}, c.invalid(fmt.Errorf("MaxDelay is %v; want 0 to 366 days", c.MaxDelay))
	case c.MaxWait < 0:
		return LimitParams{}, c.invalid(fmt.Errorf("MaxWait is %v; want 0 (as long as MaxDelay) or more", c.MaxWait))
	case c.MaxDelay > 0 && c.Limit.IsQuota():
		return LimitParams{}, c.invalid(fmt.Errorf("MaxDelay is %v on a quota; want 0: a quota denies until its period ends", c.MaxDelay))
	}
	if c.Limit.IsQuota() {
		top := calendarUnits[c.Limit.Calendar.Value().Unit].most // not span: a lowered quota forgets nothing
		periods, err := c.Limit.Calendar.Value().Periods()
		return LimitParams{Params{Emission: 1, Capacity: span, Top: top, Room: span}, span, periods}, err
	}
	wait := c.MaxDelay
	if c.MaxWait > 0 {
		wait = min(c.MaxWait, c.MaxDelay)
	}
	return LimitParams{Params{
		Emission: emission,
		Capacity: span,
		Top:      span + Ticks(c.MaxDelay),
		Room:     span + Ticks(wait),
	}, c.Limit.Capacity(), nil}, nil
}

// Charge sets p to the parameters of a charge of this limit.
func (l *LimitParams) Charge(c *Charge, refund bool, p *Params) error {
	*p = l.params
	switch {
	case c.Cost < 0:
		return c.invalid(fmt.Errorf("cost is %d; want 0 or more", c.Cost))
	case refund:
		p.Inc = -p.Emission * min(c.Cost, p.Top/p.Emission+1) // no more than all, and no overflow
	case c.Cost > l.burst:
		p.Inc, p.Room = p.Emission, -1
	default:
		p.Inc = p.Emission * c.Cost
	}
	return nil
}

func (c *Charge) invalid(err error) error {
	return fmt.Errorf("gcra: charge on policy %q: %w", Clip(c.Policy), err)
}

// Clip bounds what an error message repeats of its input.
func Clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}
