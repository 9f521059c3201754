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
// The field is a number of seconds, which Shopify writes as 2.0, or a date. A date counts from the
// Date field of the same response, so that the clocks of client and server need not agree, or from
// now without one.
//
// The wait is at least 0, also for a date that has passed, and at most [Max]. ok is false if
// the field is absent, malformed or a negative number.
func Parse(h http.Header, now time.Time) (wait time.Duration, ok bool) {
	field := strings.TrimSpace(h.Get("Retry-After"))
	if n, ok := number(field); ok {
		return duration(n), true
	}
	if field != "" && strings.Trim(field, "0123456789") == "" {
		return Max, true
	}
	at, err := http.ParseTime(field)
	if err != nil {
		return 0, false
	}
	return until(at, now, h), true
}

// until returns the time until a date: from the response's Date, or from now without one.
func until(at, now time.Time, h http.Header) time.Duration {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), Max)
}
