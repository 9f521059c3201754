package tat

import (
	"cmp"
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
func (l Limit) Capacity() int64 { return cmp.Or(l.Burst, l.Count) }

// Interval returns T and B·T in ticks, or an error that names what is not valid and
// what would be right. T is rounded to the nearest tick; it is at least 10, as a valid
// rate is at most one unit a microsecond. T of a quota is 1.
func (l Limit) Interval() (emission, span int64, err error) {
	switch {
	case l.IsQuota():
		return 1, l.Count, l.validateQuota()
	case l.Count == Unlimited && l.Per == 0:
		return 0, 0, errors.New("only LimitFor and Override may return gcra.Unlimited; want a limit such as 100/minute")
	case l.Count < 1:
		return 0, 0, fmt.Errorf("count is %d; want at least 1", l.Count)
	case l.Per <= 0:
		return 0, 0, fmt.Errorf("period is %v; want more than 0", l.Per)
	case l.Burst < 0:
		return 0, 0, fmt.Errorf("burst is %d; want 0 (same as count) or more", l.Burst)
	case l.Count > int64(l.Per/time.Microsecond):
		return 0, 0, fmt.Errorf("%d per %v is faster than 1,000,000 a second, the fastest that can be kept", l.Count, l.Per)
	}

	per, n := int64(l.Per), l.Count*Tick
	emission = per / n
	// To the nearest tick; twice the rest might overflow.
	if rest := per - emission*n; rest >= n-rest {
		emission++
	}

	// In 128 bits, as a burst may be any number.
	high, low := bits.Mul64(uint64(l.Capacity()), uint64(emission))
	if high != 0 || low > uint64(maxSpan) {
		return 0, 0, fmt.Errorf("a burst of %d at %d per %v takes longer than 366 days to refill", l.Capacity(), l.Count, l.Per)
	}
	return emission, int64(low), nil
}

// Rate is units a second, of a quota on average.
func (l Limit) Rate() float64 {
	per := l.Per
	if l.IsQuota() {
		per = l.Calendar.Value().unit().length
	}
	return float64(l.Count) / per.Seconds()
}

// Unlimited is the Count of no limit.
const Unlimited = math.MaxInt64

func (l Limit) validateQuota() error {
	calendar := l.Calendar.Value()
	if _, err := calendar.Periods(); err != nil {
		return err
	}
	switch most := calendar.unit().most; {
	case l.Per != 0:
		return fmt.Errorf("period is %v beside a calendar; want one of them", l.Per)
	case l.Burst != 0:
		return fmt.Errorf("a quota with a burst of %d; want none: all of a quota may pass at once, so add a rate as a second limit", l.Burst)
	case l.Count < 1 || l.Count > most:
		return fmt.Errorf("quota is %d; want 1 to %d in a calendar %s", l.Count, most, calendar)
	}
	return nil
}

// A Charge has the fields of gcra.Charge, which documents them, with L for gcra.Limit and R
// for gcra.Result. So a pointer to one is converted to the other.
type Charge[L, R any] struct {
	Subject  string
	Policy   string
	Limit    L
	Cost     int64
	MaxDelay time.Duration
	MaxWait  time.Duration
	MaxDebt  int64
	Late     bool
	Peek     bool
	Shadow   bool
	Result   R
	Period   time.Time
}

// Terms are what all charges of a limit have in common.
type Terms struct {
	Limit    Limit
	maxDelay time.Duration
	maxDebt  int64
}

// Terms returns the terms of a charge of this limit.
func (c *Charge[L, R]) Terms(l Limit) Terms { return Terms{l, c.MaxDelay, c.MaxDebt} }

// LimitParams are the parameters that all charges with the same terms share.
type LimitParams struct {
	params  Params // Room and Inc are 0
	burst   int64
	delay   int64    // longest, in ticks
	Debt    int64    // largest, in ticks
	Periods *Periods // of a quota; nil for a rate
}

// Params checks the terms and converts them.
func (t *Terms) Params() (p LimitParams, err error) {
	emission, span, err := t.Limit.Interval()
	quota := t.Limit.IsQuota()
	switch {
	case err != nil:
		return p, err
	case t.maxDelay < 0 || t.maxDelay > MaxDelay:
		return p, fmt.Errorf("MaxDelay is %v; want 0 to 366 days", t.maxDelay)
	case t.maxDelay > 0 && quota:
		return p, fmt.Errorf("MaxDelay is %v on a quota; want 0: a quota denies until its period ends", t.maxDelay)
	}

	// The burst and the debt are one span, which must not be longer than a TAT can lie ahead.
	longest := maxSpan
	if quota {
		longest = t.Limit.Calendar.Value().unit().most
	}
	if most := (longest - span) / emission; t.maxDebt < 0 || t.maxDebt > most {
		return p, fmt.Errorf("MaxDebt is %d; want 0 to %d: the burst and the debt must refill within 366 days, and fit the largest quota", t.maxDebt, most)
	}

	p.burst, p.delay, p.Debt = t.Limit.Capacity(), Ticks(t.maxDelay), t.maxDebt*emission
	p.params = Params{Emission: emission, Capacity: span, Top: span + max(p.delay, p.Debt)}
	if quota {
		p.params.Top = longest // rule 1 of Params: a quota that is lowered forgets nothing
		p.Periods, err = t.Limit.Calendar.Value().Periods()
	}
	return p, err
}

// Clamp returns T and the clamp of ordinary charges. Charges that agree in both bring no TAT of each other down.
func (p *LimitParams) Clamp() (emission, top int64) { return p.params.Emission, p.params.Top }

// Params sets p to the parameters of a charge, or a refund, on these terms.
func (c *Charge[L, R]) Params(l *LimitParams, refund bool, p *Params) error {
	switch {
	case c.Cost < 0:
		return fmt.Errorf("cost is %d; want 1 or more, or 0 (1)", c.Cost)
	case c.MaxWait < 0:
		return fmt.Errorf("MaxWait is %v; want 0 (does not wait) or more", c.MaxWait)
	}
	*p = l.params
	cost := max(c.Cost, 1)

	// Only ordinary charges know the clamp of the limit, so only they bring a TAT down.
	if (c.Late || refund) && l.Periods == nil {
		p.KeepTATs()
	}

	switch {
	case c.Peek:
	case refund:
		p.Inc = -p.Emission * min(cost, p.Top/p.Emission+1) // no more than all, and no overflow
	case c.Late:
		p.Late, p.Room = true, p.Capacity+l.Debt
		p.Inc = p.Emission * min(cost, p.Room/p.Emission)
	case cost > l.burst: // rule 3 of Params
		p.Inc, p.Room = p.Emission, -1
	default:
		p.Inc, p.Room = p.Emission*cost, p.Capacity+min(Ticks(c.MaxWait), l.delay)
	}
	return nil
}
