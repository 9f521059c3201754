package gcratest

import (
	"fmt"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

var zones sync.Map // of what LoadLocation has read, which opens a file each time

func zone(name string) *time.Location {
	l, ok := zones.Load(name)
	if !ok {
		read, err := time.LoadLocation(name)
		if err != nil {
			panic(err)
		}
		l, _ = zones.LoadOrStore(name, read)
	}
	return l.(*time.Location)
}

// PeriodOf names the period of a calendar that a time is in, by what clocks and
// calendars on the wall show.
func PeriodOf(c gcra.Calendar, now time.Time) string {
	unit, anchor, location := tat.Calendar(c).Parts()
	anchor = max(anchor, 1)
	now = now.In(zone(location))
	y, m, d := now.Date()

	switch unit {
	case "hour":
		return fmt.Sprint(c, hourOf(now))
	case "week":
		for (int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday())+6)%7+1 != anchor {
			d--
		}
	case "month":
		if d < anchor {
			m--
		}
		d = anchor
	case "year":
		m, d = time.January, 1
	}

	return fmt.Sprint(c, time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Format(time.DateOnly))
}

// hourOf is the latest hour that clocks have shown: one that they show twice is one.
func hourOf(now time.Time) string {
	hour := ""
	for back := range 9 { // clocks go back by 2 hours at most
		hour = max(hour, now.Add(-time.Duration(back)*15*time.Minute).Format("2006-01-02 15h"))
	}
	return hour
}

// EndOf is the first tick after the period that a time is in, by PeriodOf alone.
func EndOf(c gcra.Calendar, now time.Time) time.Time {
	name := PeriodOf(c, now)
	in, out := int64(0), int64(367*24*time.Hour/Tick)
	for out-in > 1 {
		if half := (in + out) / 2; PeriodOf(c, now.Add(time.Duration(half)*Tick)) == name {
			in = half
		} else {
			out = half
		}
	}
	return now.Add(time.Duration(out) * Tick)
}

// AnyCalendar generates calendars in zones whose clocks are set at night, at midnight,
// by half an hour, at a quarter to, and never.
func AnyCalendar() *rapid.Generator[gcra.Calendar] {
	return rapid.Custom(func(t *rapid.T) gcra.Calendar {
		unit := rapid.SampledFrom([]gcra.Calendar{gcra.Hourly, gcra.Daily, gcra.Weekly, gcra.Monthly, gcra.Yearly}).Draw(t, "unit")
		zone := rapid.SampledFrom([]string{
			"", "Europe/Berlin", "America/New_York", "America/Havana", "America/Santiago", "Asia/Beirut",
			"Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Kiritimati", "Pacific/Chatham", "Antarctica/Troll", "Africa/Casablanca",
		}).Draw(t, "zone")
		c := unit.In(time.FixedZone(zone, 0))
		switch unit {
		case gcra.Weekly:
			c = c.From(rapid.IntRange(1, 7).Draw(t, "weekday"))
		case gcra.Monthly:
			c = c.From(rapid.IntRange(1, 28).Draw(t, "day"))
		}
		return c
	})
}
