package gcra_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/internal/test/race"
)

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	l, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Quotas are equal to what their text means, whatever *time.Location they are made of.
func TestQuotaText(t *testing.T) {
	for _, tt := range []struct {
		text string
		want gcra.Limit
	}{
		{"10000/calendar month", gcra.Quota(10_000, gcra.Monthly)},
		{"10000/calendar month", gcra.Quota(10_000, gcra.Monthly.From(1).In(nil))},
		{"10000/calendar month", gcra.Quota(10_000, gcra.Monthly.In(location(t, "UTC")))},
		{"10000/calendar month from 15", gcra.Quota(10_000, gcra.Monthly.From(15))},
		{"500/calendar day Europe/Berlin", gcra.Quota(500, gcra.Daily.In(location(t, "Europe/Berlin")))},
		{"1000/calendar week from 7 America/New_York", gcra.Quota(1000, gcra.Weekly.In(location(t, "America/New_York")).From(7))},
		{"1/calendar hour", gcra.Quota(1, gcra.Hourly)},
		{"1/calendar year Asia/Kolkata", gcra.Quota(1, gcra.Yearly.In(location(t, "Asia/Kolkata")))},
	} {
		got, err := gcra.ParseLimit(tt.text)
		if err != nil || got != tt.want || tt.want.String() != tt.text {
			t.Errorf("%q: got %#v, %v; want %#v, whose text is %q", tt.text, got, err, tt.want, tt.want)
		}
		var read struct{ Limit gcra.Limit }
		if b, err := json.Marshal(struct{ Limit gcra.Limit }{tt.want}); err != nil || json.Unmarshal(b, &read) != nil || read.Limit != tt.want {
			t.Errorf("%v as JSON: got %s, %#v, %v", tt.want, b, read.Limit, err)
		}
	}

	for _, text := range []string{"5/calendar month UTC", "5/calendar month from 1", " 5/calendar  month "} {
		if got, err := gcra.ParseLimit(text); err != nil || got != gcra.Quota(5, gcra.Monthly) {
			t.Errorf("%q: got %#v, %v; want the calendar month", text, got, err)
		}
	}

	for _, tt := range []struct{ text, want string }{
		{"5/calendar", "calendar unit is missing; want hour"},
		{"5/calendar month burst 3", `location is "burst 3"; want one name, behind from and its day; a quota has no burst`},
		{"5/calendar month from", `first day is ""; want 1 to 28`},
		{"5/calendar month from 15 Europe/Berlin 3", `location is "Europe/Berlin 3"; want one name`},
		{"5/calendar month from x", `first day is "x"; want 1 to 28 of a month, or 1 (Monday) to 7 of a week`},
		{"5/calendar month from 015", `first day is "015"; want 1 to 28`},
		{"5/calendar month from +15", `without + or leading zeros`},
		{"5/calendar month Europe/Berlin from 15", "behind from and its day"},
		{"5/calendar month from 0", `first day is "0"`},
		{"5/calendar month from 29", "first day is 29; want 1 to 28"},
		{"5/calendar week from 8", "first day is 8; want 1 to 7"},
		{"5/calendar day from 2", "first day is 2; want none"},
		{"5/month", `period is "month"; want second, minute, hour, day or a duration such as 5s, or calendar month for a quota`},
		{"5/calendar fortnight", `calendar unit is "fortnight"; want hour, day, week, month or year`},
		{"5/calendar day Europe/Atlantis", `location is "Europe/Atlantis"; want a name`},
		{"5/calendar day Local", `location is "Local", which may differ between servers`},
		{"5/calendar day localtime", `location is "localtime", which may differ between servers`},
		{"5/calendar day ./localtime", `location is "./localtime"; want a name as the time zone database spells it`},
		{"5/calendar day posixrules", `location is "posixrules"; want a name as`},
		{"5/calendar day right/Europe/Berlin", `location is "right/Europe/Berlin"; want a name as`},
		{"5/calendar day posix/Europe/Berlin", `location is "posix/Europe/Berlin"; want a name as`},
		{"5/calendar day Europe//Berlin", `location is "Europe//Berlin"; want a name as`},
		{"5/calendar day Europe/./Berlin", `location is "Europe/./Berlin"; want a name as`},
		{"5/calendar day Europe/Berlin/", `location is "Europe/Berlin/"; want a name as`},
		{"5/calendar day europe/berlin", `location is "europe/berlin"; want a name as`},
		{"x/calendar day", `count is "x"`},
		{"0/calendar day", "quota is 0; want 1 to 100000000000 in a calendar day"},
		{"9000000001/calendar hour", "quota is 9000000001; want 1 to 9000000000"},
	} {
		if got, err := gcra.ParseLimit(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %#v, %v; want an error with %s", tt.text, got, err, tt.want)
		}
	}
}

// What cannot be kept is not valid, also if it was not read from text.
func TestQuotaValidate(t *testing.T) {
	for _, tt := range []struct {
		limit gcra.Limit
		want  string // part of the error; "" for none
	}{
		{gcra.Quota(1, gcra.Hourly), ""},
		{gcra.Quota(9_000_000_000, gcra.Hourly), ""},
		{gcra.Quota(100_000_000_000_000, gcra.Yearly), ""},
		{gcra.Quota(1, gcra.Monthly.From(1).In(time.UTC)), ""},
		{gcra.Quota(100_000_000_000_001, gcra.Yearly), "quota is"},
		{gcra.Quota(-1, gcra.Daily), "quota is -1"},
		{gcra.Quota(1, gcra.Daily).WithBurst(5), "burst of 5"},
		{func() gcra.Limit { l := gcra.Quota(1, gcra.Daily); l.Per = time.Hour; return l }(), "period is 1h0m0s beside a calendar"},
		{gcra.Quota(1, gcra.Calendar("").From(3)), `calendar unit is ""`},
		{gcra.Quota(1, "month from 015"), `first day is "015"`},
		{gcra.Quota(1, ""), `calendar unit is ""`},
		{gcra.Quota(1, gcra.Monthly.From(-1)), "first day is -1; want 1 to 28"},
		{gcra.Quota(1, gcra.Daily.In(time.Local)), `"Local"`},
		{gcra.Quota(1, gcra.Daily.In(time.FixedZone("X", 3600))), `location is "X"`},
		{gcra.Quota(1, gcra.Daily.In(time.FixedZone("Europe//Berlin", 0))), `location is "Europe//Berlin"; want a name as`},
		{gcra.Quota(1, gcra.Daily.In(time.FixedZone("Europe/Isle_of_Man", 0))), ""},
		{gcra.Quota(1, gcra.Daily.In(time.FixedZone("America/Argentina/ComodRivadavia", 0))), ""},
		{gcra.Quota(1, gcra.Daily.In(time.FixedZone("Etc/GMT+12", 0))), ""},
		{gcra.Quota(1, gcra.Daily.In(time.FixedZone("EST5EDT", 0))), ""},
	} {
		err := tt.limit.Validate()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%#v: got %v; want %q", tt.limit, err, tt.want)
		}

		if _, err := tt.limit.MarshalText(); (err == nil) != (tt.want == "") {
			t.Errorf("%#v as text: got %v; want %q", tt.limit, err, tt.want)
		}
		if tt.limit.Interval() != 0 {
			t.Errorf("%#v: got an interval of %v; want 0", tt.limit, tt.limit.Interval())
		}
	}
}

// Without Now, periods end by the wall clock.
func TestMemoryQuotaByTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight UTC of 2000-01-01
		m := gcra.NewMemory()
		c := gcra.Charge{Subject: "s", Policy: "p", Limit: gcra.Quota(2, gcra.Daily.In(location(t, "Asia/Kolkata"))), Cost: 1}
		for i, want := range []gcra.Result{
			{Allowed: true, Taken: 1, Remaining: 1, ResetAfter: 18*time.Hour + 30*time.Minute},
			{Allowed: true, Taken: 1, Remaining: 0, ResetAfter: 18*time.Hour + 30*time.Minute},
			{RetryAfter: 18*time.Hour + 30*time.Minute, ResetAfter: 18*time.Hour + 30*time.Minute},
		} {
			if r, err := gcra.Take(t.Context(), m, c); err != nil || r != want {
				t.Fatalf("call %d: got %+v, %v; want %+v", i, r, err, want)
			}
		}
		time.Sleep(18*time.Hour + 30*time.Minute)
		if r, err := gcra.Take(t.Context(), m, c); err != nil || !r.Allowed || r.ResetAfter != 24*time.Hour {
			t.Errorf("the next day: got %+v, %v; want allowed", r, err)
		}
	})
}

// An admission that is decided while a period ends is in one period with all of its quotas.
func TestQuotasOfAnAdmissionAreInOnePeriod(t *testing.T) {
	c := new(clock)
	m := gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { c.advance(25 * time.Minute); return c.now() }})
	for range 10 {
		charges := slices.Repeat([]gcra.Charge{{Subject: "s", Policy: "p", Limit: gcra.Quota(50, gcra.Hourly), Cost: 1}}, 3)
		if allowed, err := m.Take(t.Context(), charges); err != nil || !allowed || !charges[0].Period.Equal(charges[2].Period) {
			t.Fatalf("got %v, %v, periods until %v and %v; want one period", allowed, err, charges[0].Period, charges[2].Period)
		}
		if got := charges[0].Result.Remaining - charges[2].Result.Remaining; got != 2 {
			t.Errorf("got %d fewer left after the third charge than after the first; want 2", got)
		}
	}
}

// Quotas of any calendars and zones, that change under one name, in admissions of
// several charges, with refunds, settlements and debts in the period that was charged and
// in later ones: a store admits what the calendar on the wall says, to the tick.
func TestQuotaIsTheCalendars(t *testing.T) {
	race.Skip(t)

	rapid.Check(t, func(t *rapid.T) {
		c := new(clock)
		c.advance(time.Duration(rapid.Int64Range(-2*365*24, 20*365*24).Draw(t, "start")) * time.Hour)
		store := gcra.NewMemory(gcra.MemoryConfig{Now: c.now, Capacity: rapid.SampledFrom([]int{0, 64}).Draw(t, "capacity")})
		gcratest.CheckQuotas(t, store, c.now, c.advance, 0)
	})
}
