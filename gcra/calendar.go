package gcra

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A Calendar says when the periods of a quota begin (see [Quota]). Start from
// [Hourly], [Daily], [Weekly], [Monthly] or [Yearly]:
//
//	gcra.Monthly.From(15)   // begins on the 15th, in UTC
//	gcra.Daily.In(berlin)   // begins at midnight in Berlin
//
// Periods begin at midnight, or on the hour, by the clocks of the time zone. Where these are set
// forward or back, a period may be shorter or longer: an hour that they show twice is one period of
// 2 hours. The zero Calendar is not valid.
//
// The text is what [ParseLimit] reads after the word calendar: "month from 15 Europe/Berlin".
type Calendar string

// The calendars in UTC, with weeks from Monday and months from the 1st.
const (
	Hourly  Calendar = "hour"
	Daily   Calendar = "day"
	Weekly  Calendar = "week"
	Monthly Calendar = "month"
	Yearly  Calendar = "year"
)

// In returns the calendar in the time zone that has the name of l in the IANA database;
// nil is UTC. Only the name is used: take l from [time.LoadLocation], and not [time.Local]
// or a [time.FixedZone]. Two names of one zone, such as Asia/Kolkata and Asia/Calcutta,
// are two calendars.
func (c Calendar) In(l *time.Location) Calendar {
	unit, anchor, _ := tat.Calendar(c).Parts()
	return Calendar(tat.NewCalendar(unit, anchor, l.String()))
}

// From returns the calendar with periods that begin on a day: of the month (1 to 28)
// for [Monthly], of the week (1 is Monday, 7 is Sunday) for [Weekly].
func (c Calendar) From(anchor int) Calendar {
	unit, _, location := tat.Calendar(c).Parts()
	return Calendar(tat.NewCalendar(unit, anchor, location))
}

// Period returns when the period of t begins, and when the next one does. Both are zero
// for a calendar that is not valid.
func (c Calendar) Period(t time.Time) (begin, end time.Time) {
	periods, err := tat.Calendar(c).Periods()
	if err != nil {
		return time.Time{}, time.Time{}
	}
	p := periods.At(tat.At(t))
	return tat.Time(p.Begin), tat.Time(p.End)
}
