package tat

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/test/race"
)

// zones have every kind of clock change: by an hour at night, at midnight in both
// directions, by half an hour, at a quarter to, of a whole day, and none.
var zones = []string{
	"", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Asia/Beirut",
	"America/Sao_Paulo", "America/Havana", "America/St_Johns", "Pacific/Apia", "Antarctica/Troll", "America/Nuuk",
	"Pacific/Chatham",
}

// Every period is where a search by quarters of an hour finds it: in years in which clocks
// were set at midnight and a day was left out, and in the present.
func TestPeriodsBeginWhereClocksShowThem(t *testing.T) {
	race.Skip(t)

	for _, zone := range zones {
		for _, c := range []Calendar{"day", "week", "week from 7", "month", "month from 28", "year"} {
			c += Calendar(" " + zone)
			p := periodsOf(t, c)
			for _, years := range [][2]int{{2009, 2013}, {2025, 2028}} {
				checkPeriods(t, c, p, yearBegins(years[0]), yearBegins(years[1]))
			}
		}
	}
}

func yearBegins(y int) int64 { return At(time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC)) }

func periodsOf(t *testing.T, c Calendar) *Periods {
	t.Helper()
	p, err := c.Periods()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func checkPeriods(t *testing.T, c Calendar, p *Periods, now, end int64) {
	t.Helper()
	for now < end {
		period := p.find(Time(now).In(p.location))
		if period.Begin > now || period.End <= now {
			t.Fatalf("%v: got %v to %v for %v", c, Time(period.Begin), Time(period.End), Time(now))
		}
		if begins := firstMoment(c, p.location, period.End); begins != period.End {
			t.Fatalf("%v: a period ends at %v; want %v", c, Time(period.End).In(p.location), Time(begins).In(p.location))
		}
		if last := p.find(Time(period.End - 1).In(p.location)); last != period {
			t.Fatalf("%v: a tick before %v: got %v; want %v", c, Time(period.End), last, period)
		}
		checkNeighbours(t, c, p, period)
		now = period.End
	}
}

func checkNeighbours(t *testing.T, c Calendar, p *Periods, period Period) {
	t.Helper()
	before, next := p.find(Time(period.Begin-1).In(p.location)), p.find(Time(period.End).In(p.location))
	if period.Before != before.Begin || period.Next != next.End {
		t.Fatalf("%v: got %v; its neighbours are %v and %v", c, period, before, next)
	}
}

// firstMoment searches around a time for the first at which the clocks show a date on which
// a period begins, or a later one. All zones differ from UTC by quarters of an hour.
func firstMoment(c Calendar, l *time.Location, around int64) int64 {
	unit, anchor, _ := c.Parts()
	near := Time(around).In(l)
	y, m, d := near.Add(12 * time.Hour).Date()
	for wanted := (civil{y, m, d, 0}); ; wanted.day-- {
		day := time.Date(wanted.year, wanted.month, wanted.day, 12, 0, 0, 0, time.UTC)
		starts := unit == "day" ||
			unit == "week" && (int(day.Weekday())+6)%7 == max(anchor, 1)-1 ||
			unit == "month" && day.Day() == max(anchor, 1) ||
			unit == "year" && day.YearDay() == 1
		if !starts {
			continue
		}

		const quarter = 15 * time.Minute
		midnight := day.Add(-12 * time.Hour)
		for t := near.Add(-25 * time.Hour).Truncate(quarter); ; t = t.Add(quarter) {
			y, m, d := t.Date()
			if !time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Before(midnight) {
				return At(t)
			}
		}
	}
}

// An hour begins when clocks first show it or a later one, so one that they show twice is longer.
func TestHours(t *testing.T) {
	race.Skip(t)

	shown := func(at time.Time) time.Time {
		y, m, d := at.Date()
		return time.Date(y, m, d, at.Hour(), 0, 0, 0, time.UTC)
	}
	for i := range 2 * len(zones) {
		zone, year := zones[i/2], 2026+14*(i%2) // 2040 is a leap year beyond the database
		p := periodsOf(t, Calendar("hour "+zone))
		var begin, latest time.Time
		for at := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() == year; at = at.Add(15 * time.Minute) {
			if hour := shown(at.In(p.location)); hour.After(latest) {
				begin, latest = at, hour
			}
			period := p.find(at.In(p.location))
			if begin == at {
				checkNeighbours(t, Calendar("hour "+zone), p, period)
			}
			if at.YearDay() > 1 && period.Begin != At(begin) || period.Begin > At(at) || period.End <= At(at) {
				t.Fatalf("%q, %v: got %v to %v; want it from %v", zone, at, Time(period.Begin), Time(period.End), begin)
			}
		}
	}
}

// A quota is shorter than every period, or what was used would count in the next.
func TestQuotasAreShorterThanPeriods(t *testing.T) {
	race.Skip(t)

	for unit, u := range calendarUnits {
		for _, zone := range zones {
			p := periodsOf(t, NewCalendar(unit, 0, zone))
			for now := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC); now.Year() < 2037; {
				period := p.At(At(now))
				if length := period.End - period.Begin; length < u.most {
					t.Fatalf("%s in %s from %v: %d ticks; want at least %d", unit, zone, now, length, u.most)
				}
				now = Time(period.End)
			}
		}
	}
}
