// Package retryafter reads what a response says about the limit of its server: Retry-After, and in
// fields.go the RateLimit fields and whether the response is a denial. Every client in this module
// uses it.
package retryafter

import (
	"net/http"
	"strings"
	"time"
)

// Max is the longest wait that Parse returns. A store accepts no longer delay.
const Max = 366 * 24 * time.Hour

// Parse returns how long Retry-After asks the client to wait (RFC 9110, section 10.2.3).
// The field is a number of seconds, which Shopify writes as 2.0, or a date. Before it count the
// fields of Azure and OpenAI that have milliseconds. A date counts from the Date field of the same
// response, so that the clocks of client and server need not agree, or from now without one.
//
// The wait is at least 0, also for a date that has passed, and at most [Max]. ok is false if
// the field is absent, malformed or a negative number.
func Parse(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	for _, name := range [...]string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if n, ok := number(h.Get(name)); ok {
			return duration(n / 1000), true
		}
	}

	field := strings.TrimSpace(h.Get("Retry-After"))
	if n, ok := number(field); ok {
		return duration(n), true
	}
	if field != "" && strings.Trim(field, "0123456789") == "" {
		return Max, true
	}
	at, ok := parseDate(field)
	if !ok {
		return 0, false
	}
	return until(at, now, h), true
}

// dates are the forms that servers send beside those of HTTP. Go's RFC1123 writes UTC for GMT, and
// Atlassian's form has no seconds.
var dates = [...]string{"Mon, 02 Jan 2006 15:04:05 UTC", time.RFC1123Z, time.RFC3339, "2006-01-02T15:04Z07:00"}

func parseDate(field string) (at time.Time, ok bool) {
	if field == "" {
		return at, false // as in most responses
	}
	at, err := http.ParseTime(field)
	for i := 0; err != nil && i < len(dates); i++ {
		at, err = time.Parse(dates[i], field)
	}
	return at, err == nil
}

// until returns the time until a date: from the response's Date, or from now without one.
func until(at, now time.Time, h http.Header) time.Duration {
	if date, ok := parseDate(h.Get("Date")); ok {
		now = date
	}
	return min(max(at.Sub(now), 0), Max)
}
