package pacer

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/retryafter"
)

var noon = time.Unix(1_800_000_000, 0).UTC()

// head returns a header of "Name: value" lines.
func head(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

func TestFields(t *testing.T) {
	none := fields{remaining: -1}
	for _, c := range []struct {
		name   string
		status int
		header http.Header
		want   fields
	}{
		{"nothing", 200, head(), none},
		{"remaining alone", 200, head("RateLimit-Remaining: 42"), fields{remaining: 42}},
		{"draft 6", 200, head("RateLimit-Limit: 20", "RateLimit-Remaining: 7", "RateLimit-Reset: 8", "RateLimit-Policy: 100;w=50"),
			fields{policy: "100;w=50", remaining: 7, capacity: 20, rate: 2}},
		{"draft 3", 200, head("RateLimit-Limit: 20, 100;w=50", "RateLimit-Remaining: 7"), fields{policy: "20", remaining: 7, capacity: 20}},
		{"rate from reset", 200, head("RateLimit-Limit: 20", "RateLimit-Remaining: 10", "RateLimit-Reset: 5"),
			fields{policy: "20", remaining: 10, capacity: 20, rate: 2, derived: true}},
		{"Reset of a denial gives no rate", 429, head("RateLimit-Limit: 20", "RateLimit-Remaining: 0", "RateLimit-Reset: 1", "Retry-After: 1"),
			fields{policy: "20", capacity: 20, retryAfter: time.Second}},
		{"X-RateLimit", 200, head("X-RateLimit-Limit: 20", "X-RateLimit-Remaining: 10", "X-RateLimit-Reset: 5"),
			fields{policy: "20", remaining: 10, capacity: 20, rate: 2, derived: true}},
		{"X-RateLimit, Reset is a Unix time", 200, head("X-RateLimit-Limit: 20", "X-RateLimit-Remaining: 10", "X-RateLimit-Reset: 1800000005"),
			fields{policy: "20", remaining: 10, capacity: 20, rate: 2, derived: true}},
		{"draft 11, the least remaining", 200, head(`RateLimit-Policy: "burst";q=10;w=5, "daily";q=10000;w=86400`, `RateLimit: "burst";r=9;t=1, "daily";r=3;t=9`),
			fields{policy: `"daily"`, remaining: 3, capacity: 10000, rate: 10000.0 / 86400}},
		{"draft 11 on two lines", 200, head(`RateLimit: "a";r=9`, `RateLimit: "b";r=5`), fields{policy: `"b"`, remaining: 5}},
		{"draft 11 before draft 6", 200, head(`RateLimit: "a";r=9`, "RateLimit-Remaining: 5"), fields{policy: `"a"`, remaining: 9}},
		{"names with separators", 200, head(`RateLimit: "a;r=1,\"";r=9`, `RateLimit-Policy: "a;r=1,\"";q=10;w=5`),
			fields{policy: `"a;r=1,\""`, remaining: 9, capacity: 10, rate: 2}},
		{"a date", 503, head("Retry-After: " + noon.Add(time.Minute).Format(http.TimeFormat)), fields{remaining: -1, retryAfter: time.Minute}},
		{"a date on a server whose clock is an hour fast", 503, head("Retry-After: "+noon.Add(61*time.Minute).Format(http.TimeFormat), "Date: "+noon.Add(time.Hour).Format(http.TimeFormat)),
			fields{remaining: -1, retryAfter: time.Minute}},
		{"a date that has passed", 503, head("Retry-After: " + noon.Add(-time.Minute).Format(http.TimeFormat)), none},
		{"Retry-After on success", 200, head("Retry-After: 5"), none},
		{"Retry-After of a century", 429, head("Retry-After: 3155760000"), fields{remaining: -1, retryAfter: retryafter.Max}},

		{"malformed remaining", 200, head("RateLimit-Remaining: -1"), none},
		{"malformed remaining falls back", 200, head("RateLimit-Remaining: x", "X-RateLimit-Remaining: 4"), fields{remaining: 4}},
		{"malformed item", 200, head(`RateLimit: "a", "b";r=x, c;r=1, "d";r=4`), fields{policy: `"d"`, remaining: 4}},
		{"malformed policy", 200, head("RateLimit-Remaining: 4", "RateLimit-Policy: ;w=, 10;w=0, x;w=5"), fields{remaining: 4}},
		{"malformed Retry-After", 429, head("Retry-After: soon"), none},
		{"a number of 16 digits", 200, head("RateLimit-Remaining: 1000000000000000"), none},
	} {
		if got := readFields(noon, c.status, c.header); got != c.want {
			t.Errorf("%s: got %+v; want %+v", c.name, got, c.want)
		}
	}
}

// For every header, a sleep is at least 0 and at most maxHold and the time of the queue, and the
// share stays within its bounds.
func FuzzFields(f *testing.F) {
	f.Add(429, "7", `"a";r=0;t=1`, `"a";q=10;w=1`, "10", "0", "3")
	f.Add(200, "", "", "100;w=60", "100", "42", "1800000005")
	f.Add(503, "Wed, 21 Oct 2015 07:28:00 GMT", `"\`, `;;=,"`, "-1", "99999999999999999999", "NaN")
	f.Fuzz(func(t *testing.T, status int, after, list, policy, limit, remaining, reset string) {
		h := http.Header{
			"Retry-After": {after}, "Ratelimit": {list}, "Ratelimit-Policy": {policy},
			"Ratelimit-Limit": {limit}, "Ratelimit-Remaining": {remaining}, "X-Ratelimit-Remaining": {remaining},
			"Ratelimit-Reset": {reset}, "X-Ratelimit-Reset": {reset},
		}
		read := readFields(noon, status, h)
		if math.IsNaN(read.remaining+read.capacity+read.rate) || math.IsInf(read.remaining+read.capacity+read.rate, 0) || read.rate < 0 || read.capacity < 0 || read.retryAfter < 0 {
			t.Fatalf("got %+v", read)
		}
		p := Pacer{Rand: func() float64 { return 0.5 }}
		now := noon
		for i := range 20 {
			d := p.Next(now)
			if most := maxHold + 2*maxInterval; d < 0 || d > most {
				t.Fatalf("request %d: got a sleep of %v; want 0 to %v", i, d, most)
			}
			now = now.Add(d)
			if d := p.Again(now); d < 0 || d > maxHold+maxInterval {
				t.Fatalf("request %d: got another sleep of %v", i, d)
			}
			p.Done(now, status, h)
			if p.pacing && (!(p.share > 0) || p.share > maxShare) {
				t.Fatalf("request %d: got a share of %v", i, p.share)
			}
		}
	})
}
