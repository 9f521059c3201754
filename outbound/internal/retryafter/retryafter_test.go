package retryafter

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

var now = time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)

func TestParse(t *testing.T) {
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	const absent = -1
	for _, c := range []struct {
		field, date string
		want        time.Duration
	}{
		// Seconds: digits alone.
		{"0", "", 0},
		{"120", "", 2 * time.Minute},
		{" 7 ", "", 7 * time.Second},
		{"007", "", 7 * time.Second},
		{"31622400", "", Max},
		{"31622401", "", Max},
		{"99999999999999999999", "", Max},
		{"", "", absent},
		{"-1", "", absent},
		{"+1", "", absent},
		{"2.0", "", 2 * time.Second},
		{"1.5", "", 1500 * time.Millisecond},
		{"1.", "", absent},
		{".5", "", absent},
		{"1.5.1", "", absent},
		{"1e3", "", absent},
		{"0x10", "", absent},
		{"١٢", "", absent},
		{"soon", "", absent},

		// A date counts from Date, or from the local clock if there is no valid Date.
		{date(time.Minute), "", time.Minute},
		{date(time.Minute), "yesterday", time.Minute},
		{date(time.Minute), date(-time.Hour), time.Hour + time.Minute},
		{date(time.Minute), date(time.Minute), 0},
		{date(-time.Minute), "", 0},
		{"Fri, 31 Dec 9999 23:59:59 GMT", "", Max},
		{"Sat, 01 Jan 0000 00:00:00 GMT", "", 0},

		// The two obsolete forms of a date.
		{"Friday, 15-Jan-27 08:00:05 GMT", "", 5 * time.Second},
		{"Fri Jan 15 08:00:05 2027", "", 5 * time.Second},

		// Forms of other kinds of servers.
		{now.Add(time.Minute).Format(time.RFC1123), "", time.Minute},
		{now.Add(time.Minute).Format(time.RFC1123), now.Add(-time.Hour).Format(time.RFC1123), time.Hour + time.Minute},
		{now.Add(time.Minute).Format(time.RFC1123Z), "", time.Minute},
		{now.Add(time.Minute).Format(time.RFC3339), "", time.Minute},
		{"Fri, 15 Jan 2027 08:01:00 EST", "", absent},

		// Seconds do not depend on a clock.
		{"120", date(-time.Hour), 2 * time.Minute},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.field)
		h.Set("Date", c.date)
		want, wantOK := max(c.want, 0), c.want != absent
		if got, ok := Parse(h, now); got != want || ok != wantOK {
			t.Errorf("Retry-After %q, Date %q: got %v, %v; want %v, %v", c.field, c.date, got, ok, want, wantOK)
		}
	}

	if got, ok := Parse(nil, now); got != 0 || ok {
		t.Errorf("no header: got %v, %v; want 0, false", got, ok)
	}
}

// Every field gives a wait from 0 to Max, and seconds and dates that a server writes give the
// wait that they mean.
func FuzzParse(f *testing.F) {
	for _, field := range []string{
		"", "0", "1", "120", "-1", "+1", "1.5", "1e3", " 7 ", "0x10", "99999999999999999999", "9223372036854775807",
		"Fri, 31 Dec 9999 23:59:59 GMT", "Sat, 01 Jan 0000 00:00:00 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "١٢",
	} {
		f.Add(field, "Sun, 06 Nov 1994 08:49:37 GMT", uint32(60))
		f.Add(field, "", uint32(0))
	}

	f.Fuzz(func(t *testing.T, field, date string, n uint32) {
		h := http.Header{"Retry-After": {field}, "Date": {date}}
		if wait, ok := Parse(h, now); wait < 0 || wait > Max || !ok && wait != 0 {
			t.Errorf("Retry-After %q, Date %q: got %v, %v; want 0 to %v", field, date, wait, ok, Max)
		}

		n %= uint32(Max / time.Second)
		want := time.Duration(n) * time.Second
		h.Set("Retry-After", fmt.Sprint(n))
		if wait, ok := Parse(h, now); wait != want || !ok {
			t.Errorf("Retry-After %d: got %v, %v; want %v", n, wait, ok, want)
		}

		h.Set("Date", now.Format(http.TimeFormat))
		h.Set("Retry-After", now.Add(want).Format(http.TimeFormat))
		if wait, ok := Parse(h, now.Add(time.Hour)); wait != want || !ok {
			t.Errorf("Retry-After %v after Date: got %v, %v", want, wait, ok)
		}
	})
}
