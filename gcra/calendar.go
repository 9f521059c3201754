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
// Periods begin at midnight, or on the hour, by the clocks in Location. The day on which
// they are set has 23 or 25 hours, and if they are set at midnight, it begins with its
// first moment. If they are set by half an hour, or at 2:45, two periods of Hourly are
// shorter than an hour; the shortest has 15 minutes.
type Calendar struct {
	Unit string // hour, day, week, month or year

	// Location is the name of a time zone as the IANA database spells it, such as
	// Europe/Berlin; "" and "UTC" are UTC. It is a name, not a *time.Location, so that
	// limits can be compared and written as text. Two names of one zone, such as
	// Asia/Kolkata and Asia/Calcutta, are two calendars.
	Location string

	// Anchor is where a period begins: the day of the month (1 to 28) or of the week
	// (1 is Monday, 7 is Sunday). 0 means 1. Other units have none.
	Anchor int
}

// The calendars in UTC, with weeks from Monday and months from the 1st.
var (
	Hourly  = Calendar{Unit: "hour"}
	Daily   = Calendar{Unit: "day"}
	Weekly  = Calendar{Unit: "week"}
	Monthly = Calendar{Unit: "month"}
	Yearly  = Calendar{Unit: "year"}
)

// In returns the calendar in the time zone of l; nil is UTC. The zone must be in the
// database under its name: [time.Local] and a [time.FixedZone] are not valid, as
// other servers would not know them.
func (c Calendar) In(l *time.Location) Calendar {
	c.Location = l.String()
	return c
}

// From returns the calendar with periods that begin on a day: of the month (1 to 28)
// for [Monthly], of the week (1 is Monday, 7 is Sunday) for [Weekly].
func (c Calendar) From(anchor int) Calendar {
	c.Anchor = anchor
	return c
}

// Period returns when the period of t begins and ends. The end is the moment in which the
// next one begins. Both are zero for a calendar that is not valid.
func (c Calendar) Period(t time.Time) (begin, end time.Time) {
	periods, err := tat.Calendar(c).Periods()
	if err != nil {
		return time.Time{}, time.Time{}
	}
	p := periods.At(tat.At(t))
	return tat.Time(p.Begin), tat.Time(p.End)
}
