package gcra

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unique"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// Limit says how much may pass: Count units in every Per, and at most Burst units
// at once; or a [Quota] by calendar.
//
// A fresh key holds a full bucket of Burst units. It refills one unit every
// Per/Count, the emission interval, so any interval of length Per admits about
// Burst + Count units at most: see the package comment. Set Burst to 1 if no two
// requests may pass together.
//
// The emission interval is rounded to the nearest 100 ns, which is at most 0.05 % of it
// up to 10,000 a second. The fastest rate is 1,000,000 a second. A bucket must refill
// within 366 days. The zero Limit is not valid; see [Limit.Validate].
// Limits can be compared with ==.
type Limit struct {
	Count int64         // units in Per: 100 in "100 a minute"; of a quota, units in a period
	Per   time.Duration // time in which Count units become available: a minute in "100 a minute"; 0 for a quota
	Burst int64         // units that may pass at once after a pause; 0 means Count; 0 for a quota

	calendar unique.Handle[tat.Calendar] // see Quota and Calendar; zero for a rate
}

// PerSecond allows n units a second and n at once.
func PerSecond(n int64) Limit { return Limit{Count: n, Per: time.Second} }

// PerMinute allows n units a minute and n at once.
func PerMinute(n int64) Limit { return Limit{Count: n, Per: time.Minute} }

// PerHour allows n units an hour and n at once.
func PerHour(n int64) Limit { return Limit{Count: n, Per: time.Hour} }

// PerDay allows n units in 24 hours and n at once.
func PerDay(n int64) Limit { return Limit{Count: n, Per: day} }

// Quota allows n units in each period of a calendar, and gives all of them back when
// the next one begins: Quota(10_000, Monthly.From(15)). Around that moment 2n may
// pass; a rate as a second limit spreads them.
//
// n is at most 9·10^9 an hour, 10^11 a day, 10^12 a week, 10^13 a month and 10^14 a
// year. A quota has no MaxDelay, and package turns does not take it.
func Quota(n int64, c Calendar) Limit {
	return Limit{Count: n, calendar: unique.Make(tat.Calendar(c).Canonical())}
}

// IsQuota reports whether the limit is a quota, and not a rate.
func (l Limit) IsQuota() bool { return l.calendar != unique.Handle[tat.Calendar]{} }

// Calendar returns the calendar of a quota, and the zero Calendar for a rate.
func (l Limit) Calendar() Calendar {
	if !l.IsQuota() {
		return ""
	}
	return Calendar(l.calendar.Value())
}

// WithBurst returns the limit with room for n units at once:
// PerMinute(100).WithBurst(20) sustains 100 a minute and lets 20 pass together
// after a pause.
func (l Limit) WithBurst(n int64) Limit {
	l.Burst = n
	return l
}

// Unlimited is no limit. Package middleware takes it from LimitFor and Override, and a
// policy file has it as none. [Limit.Validate] and every [Store] reject it.
func Unlimited() Limit { return Limit{Count: tat.Unlimited} }

const day = 24 * time.Hour

// Validate returns nil for a valid limit, otherwise an error with the mistake. A [Store] may
// reject a valid limit.
func (l Limit) Validate() error {
	_, _, err := l.tat().Interval()
	return err
}

func (l *Limit) tat() tat.Limit {
	return tat.Limit{Count: l.Count, Per: l.Per, Burst: l.Burst, Calendar: l.calendar}
}

// Capacity is the most units that a bucket holds: Burst or, where that is 0,
// Count.
func (l Limit) Capacity() int64 { return cmp.Or(l.Burst, l.Count) }

// Interval is the emission interval, the time from one unit to the next: Per/Count to the
// nearest 100 ns. It is 0 for a quota and for a limit that is not valid.
func (l Limit) Interval() time.Duration {
	emission, _, err := l.tat().Interval()
	if err != nil || l.IsQuota() {
		return 0
	}
	return tat.Duration(emission)
}

// Rate returns units a second, of a quota on average: use it to compare valid limits.
func (l Limit) Rate() float64 { return l.tat().Rate() }

var units = []struct {
	name string
	per  time.Duration
}{{"second", time.Second}, {"minute", time.Minute}, {"hour", time.Hour}, {"day", day}}

// ParseLimit reads a limit as [Limit.String] writes it: a count, a slash and
// either a unit (second, minute, hour, day) or a duration as
// [time.ParseDuration] reads it, then perhaps the word burst and its size. A quota has
// the word calendar before its unit (hour, day, week, month, year), and then perhaps from
// and the day with which a period begins, and the time zone.
//
//	100/minute
//	25/5s
//	100/minute burst 20
//	10000/calendar month
//	10000/calendar month from 15
//	500/calendar day Europe/Berlin
//	1000/calendar week from 7 America/New_York
//
// The word none is [Unlimited].
func ParseLimit(s string) (Limit, error) {
	text := strings.Join(strings.Fields(s), " ")
	if text == noLimit {
		return Unlimited(), nil
	}

	l, err := parse(text)
	if err == nil {
		err = l.Validate()
	}
	if err != nil {
		return Limit{}, fmt.Errorf("gcra: limit %.80q: %w", s, err)
	}
	return l, nil
}

const noLimit = "none"

var rateForm = regexp.MustCompile(`^([^/ ]*)/(\S*)(?: burst (\S+))?$`)

func parse(text string) (l Limit, err error) {
	count, calendar, isQuota := strings.Cut(text, "/calendar ")
	if isQuota {
		n, err := parseInt("count", count)
		return Quota(n, Calendar(calendar)), err
	}

	parts := rateForm.FindStringSubmatch(text)
	if parts == nil {
		return l, errors.New(`want a form such as "100/minute", "25/5s", "100/minute burst 20" or "10000/calendar month"`)
	}

	count, per, burst := parts[1], parts[2], parts[3]
	if l.Count, err = parseInt("count", count); err != nil {
		return l, err
	}
	// Without a burst it stays 0, which is the count.
	if l.Per, err = parsePer(per); err != nil || burst == "" {
		return l, err
	}

	l.Burst, err = parseInt("burst", burst)
	if err == nil && l.Burst == 0 {
		err = errors.New("burst is 0; want at least 1, or leave it out")
	}
	return l, err
}

func parseInt(what, s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is %.80q; want %d at most", what, s, int64(math.MaxInt64))
	case err != nil || strconv.FormatInt(n, 10) != s:
		return 0, fmt.Errorf("%s is %.80q; want a whole number, without + or leading zeros", what, s)
	}
	return n, nil
}

func parsePer(s string) (time.Duration, error) {
	for _, u := range units {
		if s == u.name {
			return u.per, nil
		}
	}
	if s == "calendar" {
		return 0, errors.New("calendar unit is missing; want hour, day, week, month or year")
	}

	d, err := time.ParseDuration(s)
	if err != nil {
		// A month has no fixed length, so it is no period of a rate.
		quota := ""
		if Quota(1, Calendar(s)).Validate() == nil {
			quota = fmt.Sprintf(", or calendar %s for a quota", s)
		}
		return 0, fmt.Errorf("period is %.80q; want second, minute, hour, day or a duration such as 5s%s", s, quota)
	}
	return d, nil
}

// perName is the inverse of parsePer.
func perName(per time.Duration) string {
	for _, u := range units {
		if per == u.per {
			return u.name
		}
	}
	return per.String()
}

// String writes a valid limit or [Unlimited] as [ParseLimit] reads it, for example
// "100/minute burst 20".
func (l Limit) String() string {
	switch {
	case l == Unlimited():
		return noLimit
	case l.IsQuota():
		return fmt.Sprintf("%d/calendar %v", l.Count, l.calendar.Value())
	case l.Burst != 0:
		return fmt.Sprintf("%d/%s burst %d", l.Count, perName(l.Per), l.Burst)
	}
	return fmt.Sprintf("%d/%s", l.Count, perName(l.Per))
}

// MarshalText implements [encoding.TextMarshaler], for JSON and others: it returns the
// text of String, or "" for the zero Limit. Any other limit that [ParseLimit] does not
// accept is an error.
func (l Limit) MarshalText() ([]byte, error) {
	if l == (Limit{}) {
		return []byte{}, nil
	}
	if err := l.Validate(); err != nil && l != Unlimited() {
		return nil, fmt.Errorf("gcra: limit %q: %w", l, err)
	}
	return []byte(l.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler], for JSON, [flag.TextVar] and
// others: it reads what [ParseLimit] reads, and "" as the zero Limit. After an error the
// limit is unchanged.
func (l *Limit) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*l = Limit{}
		return nil
	}
	parsed, err := ParseLimit(string(text))
	if err == nil {
		*l = parsed
	}
	return err
}
