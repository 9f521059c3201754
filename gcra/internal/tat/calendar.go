package tat

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Calendar is the text of a gcra.Calendar, as gcra.ParseLimit reads it: "month from 15 Europe/Berlin".
type Calendar string

// NewCalendar returns the calendar of its parts. An anchor of 0 and the location "" are the defaults.
func NewCalendar(unit string, anchor int, location string) Calendar {
	if anchor != 0 {
		unit += " from " + strconv.Itoa(anchor)
	}
	if location != "" {
		unit += " " + location
	}
	return Calendar(unit)
}

// Parts returns the parts of the calendar. What is no anchor is part of the location, which is not valid then.
func (c Calendar) Parts() (unit string, anchor int, location string) {
	unit, location, _ = strings.Cut(string(c), " ")
	text, ok := strings.CutPrefix(location, "from ")
	if !ok {
		return unit, 0, location
	}

	text, rest, _ := strings.Cut(text, " ")
	if anchor, _ = strconv.Atoi(text); anchor == 0 || strconv.Itoa(anchor) != text {
		return unit, 0, location
	}
	return unit, anchor, rest
}

// unit is what depends on the unit of the calendar; zero if it is not valid.
func (c Calendar) unit() calendarUnit {
	name, _, _ := strings.Cut(string(c), " ")
	return calendarUnits[name]
}

// calendarUnit is what depends on the unit of a calendar.
type calendarUnit struct {
	anchors int // the largest anchor; 0 if there is none

	// most is the largest quota: see rule 3 of Period.
	most int64

	// length is how long a period is on average.
	length time.Duration

	// begin is the beginning of the period i periods after the one that has the time.
	begin func(date civil, anchor, i int) civil
}

const meanYear = 365*24*time.Hour + 5*time.Hour + 49*time.Minute + 12*time.Second // Gregorian

var calendarUnits = map[string]calendarUnit{
	// An hour of Pacific/Chatham has 15 minutes.
	"hour": {0, 9_000_000_000, time.Hour, func(d civil, _, i int) civil { return civil{d.year, d.month, d.day, d.hour + i} }},
	"day":  {0, 100_000_000_000, 24 * time.Hour, func(d civil, _, i int) civil { return civil{d.year, d.month, d.day + i, 0} }},
	"week": {7, 1_000_000_000_000, 7 * 24 * time.Hour, func(d civil, anchor, i int) civil {
		weekday := time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC).Weekday()
		return civil{d.year, d.month, d.day - (int(weekday)-anchor+7)%7 + 7*i, 0}
	}},
	"month": {28, 10_000_000_000_000, meanYear / 12, func(d civil, anchor, i int) civil {
		return civil{d.year, d.month + time.Month(i), anchor, 0}
	}},
	"year": {0, 100_000_000_000_000, meanYear, func(d civil, _, i int) civil { return civil{d.year + i, 1, 1, 0} }},
}

func loadLocation(name string) (*time.Location, error) {
	day, isDay := strings.CutPrefix(name+" ", "from ") // see Parts
	switch {
	case isDay:
		return nil, fmt.Errorf("first day is %.80q; want 1 to 28 of a month, or 1 (Monday) to 7 of a week, without + or leading zeros", strings.TrimSpace(day))
	case strings.Contains(name, " "):
		return nil, fmt.Errorf("location is %.80q; want one name, behind from and its day; a quota has no burst", name)
	case name == "Local" || name == "localtime": // the second is a file on many machines
		return nil, fmt.Errorf("location is %q, which may differ between servers; want a name such as Europe/Berlin", name)
	case name != "" && !zoneName(name):
		return nil, fmt.Errorf("location is %.80q; want a name as the time zone database spells it, such as Europe/Berlin, or none for UTC", name)
	}
	l, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("location is %.80q; want a name of the time zone database such as Europe/Berlin, or none for UTC; import time/tzdata if the machine has no database (%w)",
			name, err)
	}
	return l, nil
}

// zoneName reports whether each part of a name begins with a capital, as in the time zone
// database. What else a machine may load is not there: another spelling of a path, which
// would be a bucket of its own, and files that differ between machines, such as posixrules
// and right/Europe/Berlin.
func zoneName(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] < 'A' || part[0] > 'Z' {
			return false
		}
	}
	return true
}

// Canonical returns the calendar with zero for what is the default: calendars that mean
// the same become equal.
func (c Calendar) Canonical() Calendar {
	unit, anchor, location := c.Parts()
	if anchor == 1 && calendarUnits[unit].anchors > 0 {
		anchor = 0
	}
	if location == "UTC" {
		location = ""
	}
	return NewCalendar(unit, anchor, location)
}

// A Period is one period of a calendar, in ticks since Epoch. It ends before End.
//
// Which period a quota is in follows the same rules in this process and in Redis:
//
//  1. The store's clock says which period is current, never the caller's: a request to
//     Redis carries several ends, and the script takes the first that is later than its time.
//  2. A period that has begun goes on. If the clock has gone back to the period before, a TAT
//     of the next period makes that one current, also if its units were given back.
//  3. A unit is one tick, and a quota is shorter than any period of its calendar. So a value
//     of a period that is over lies before the end of the current one, and counts as nothing.
//  4. A refund names the end of the period that was charged, and does nothing once that is
//     over. What is charged late is charged in the current period.
//  5. All quotas of one admission are in the periods of one time.
type Period struct {
	Before int64 // begin of the period before
	Begin  int64
	End    int64
	Next   int64 // end of the period after
}

// Periods are the periods of a calendar.
type Periods struct {
	// Suffix ends the key of a bucket, so that a rate and a quota, or two calendars,
	// never read each other's values: "~month15.Europe/Berlin".
	Suffix string

	unit     calendarUnit
	anchor   int
	location *time.Location
	last     atomic.Pointer[Period] // that At returned
}

// calendars has the periods of every valid calendar that was asked for.
var calendars sync.Map

// Periods returns the periods of the calendar, always the same value, or an error that
// names what is not valid and what would be right.
func (c Calendar) Periods() (*Periods, error) {
	if p, ok := calendars.Load(c); ok {
		return p.(*Periods), nil
	}
	canonical := c.Canonical()
	unit, anchor, location := canonical.Parts()
	u, ok := calendarUnits[unit]
	switch {
	case !ok:
		return nil, fmt.Errorf("calendar unit is %.80q; want hour, day, week, month or year", unit)
	case anchor != 0 && u.anchors == 0:
		return nil, fmt.Errorf("first day is %d; want none, as only a week and a month have one", anchor)
	case anchor < 0 || anchor > u.anchors:
		return nil, fmt.Errorf("first day is %d; want 1 to %d", anchor, u.anchors)
	}

	// Once for each calendar, as it reads a file.
	l, err := loadLocation(location)
	if err != nil {
		return nil, err
	}

	suffix := "~" + strings.NewReplacer(" from ", "", " ", ".").Replace(string(canonical))
	p := &Periods{Suffix: suffix, unit: u, anchor: max(anchor, 1), location: l}
	// Of two goroutines that get here at once both return the first one's.
	made, _ := calendars.LoadOrStore(c, p)
	return made.(*Periods), nil
}

// At returns the period of a time in ticks.
func (p *Periods) At(now int64) Period {
	if last := p.last.Load(); last != nil && last.Begin <= now && now < last.End {
		return *last
	}
	found := p.find(Time(now).In(p.location))
	p.last.Store(&found)
	return found
}

// find computes the period of a time in the calendar's location.
func (p *Periods) find(now time.Time) Period {
	y, m, d := now.Date()
	begin := func(i int) time.Time {
		return p.unit.begin(civil{y, m, d, now.Hour()}, p.anchor, i).first(p.location)
	}

	// The period of the time itself may not be the one of now: the clocks of the location decide.
	i := 0
	for begin(i).After(now) {
		i--
	}
	for !begin(i + 1).After(now) {
		i++
	}

	// An hour or a day that the clocks skip is no period.
	before, next := i-1, i+2
	for begin(before).Equal(begin(i)) {
		before--
	}
	for begin(next).Equal(begin(i + 1)) {
		next++
	}
	return Period{At(begin(before)), At(begin(i)), At(begin(i + 1)), At(begin(next))}
}

// civil is what clocks and calendars on the wall show. Values outside their range, such as the 32nd, are normalised as
// by time.Date.
type civil struct {
	year      int
	month     time.Month
	day, hour int
}

// first is the first moment at which the clocks of a location show this or a later time.
// time.Date does not say which moment it chooses where clocks are set.
func (d civil) first(l *time.Location) time.Time {
	shown := time.Date(d.year, d.month, d.day, d.hour, 0, 0, 0, time.UTC)

	// Look at one offset from UTC after another, from a time at which every clock is behind.
	for t := shown.Add(-26 * time.Hour).In(l); ; {
		_, offset := t.Zone()
		first := shown.Add(-time.Duration(offset) * time.Second).In(l)
		if first.Before(t) { // left out: the clocks were set past it
			first = t
		}

		// The last offset has no bound. After 2037 it may have the end of a year, in leap years a day early.
		_, next := t.ZoneBounds()
		if !next.After(t) || first.Before(next) {
			return first
		}
		t = next
	}
}
