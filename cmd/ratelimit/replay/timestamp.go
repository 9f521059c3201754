package replay

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// commonTime is the time of the Common log format.
const commonTime = "02/Jan/2006:15:04:05 -0700"

// A time outside these years counts as misread, for example in another unit.
const (
	firstYear = 2000
	lastYear  = 2099
)

// timestamps parses times. It caches the last one.
type timestamps struct {
	text      string
	at        int64 // microseconds since 1970
	zone      *time.Location
	subSecond bool // some were not whole seconds
}

// read returns a time in microseconds since 1970. The formats are the Common log
// format's and RFC 3339's (the colon in the offset may be missing), and Unix time in seconds,
// milliseconds, microseconds or nanoseconds.
func (c *timestamps) read(text []byte) (int64, error) {
	if string(text) == c.text && c.zone != nil {
		return c.at, nil
	}
	s := string(text)
	t, err := parseTime(s)
	if err != nil {
		return 0, err
	}
	if y := t.Year(); y < firstYear || y > lastYear {
		return 0, fmt.Errorf("the time is %q, in the year %d; want %d to %d", clip(s), y, firstYear, lastYear)
	}
	c.text, c.at, c.zone = s, t.UnixMicro(), t.Location()
	c.subSecond = c.subSecond || t.Nanosecond() != 0
	return c.at, nil
}

// precision returns 2 for a time with fractions of a second, 1 for whole seconds and 0 for
// no time. The most precise time of a line counts: Traefik writes one of each kind, nginx
// often does.
func precision(text []byte) int {
	t, err := parseTime(string(text))
	switch {
	case err != nil || t.Year() < firstYear || t.Year() > lastYear:
		return 0
	case t.Nanosecond() == 0:
		return 1
	default:
		return 2
	}
}

func parseTime(s string) (time.Time, error) {
	if t, ok := parseUnix(s); ok {
		return t, nil
	}
	layouts := []string{time.RFC3339, "2006-01-02T15:04:05Z0700"}
	if len(s) == len(commonTime) && s[2] == '/' {
		layouts = []string{commonTime}
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("the time is %q; want one such as 20/Nov/2026:13:55:36 +0000, 2026-11-20T13:55:36.123Z or 1795182936.123", clip(s))
}

// parseUnix parses a number. Its size shows the unit: until the year 2286 seconds have 10
// digits before the point, milliseconds 13.
func parseUnix(s string) (time.Time, bool) {
	whole, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 0 {
		return time.Time{}, false
	}

	unit := int64(1) // per second
	for _, most := range []int64{1e11, 1e14, 1e17} {
		if n >= most {
			unit *= 1000
		}
	}

	nanos := int64(0)
	if fraction != "" {
		digits := (fraction + "000000000")[:9]
		if nanos, err = strconv.ParseInt(digits, 10, 64); err != nil || nanos < 0 {
			return time.Time{}, false
		}
	}

	return time.Unix(n/unit, (n%unit)*(1e9/unit)+nanos/unit).UTC(), true
}
