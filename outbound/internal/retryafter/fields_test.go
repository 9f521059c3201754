package retryafter

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
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
	none := Answer{Remaining: -1}
	const s = time.Second
	date := func(after time.Duration) string { return noon.Add(after).Format(http.TimeFormat) }
	down := func(later bool, wait time.Duration) Answer {
		return Answer{Down: true, Later: later, Wait: wait, Remaining: -1}
	}
	denied := func(wait time.Duration) Answer { return Answer{Denied: true, Wait: wait, Remaining: -1} }
	for _, c := range []struct {
		name   string
		status int
		header http.Header
		want   Answer
	}{
		{"nothing", 200, head(), none},
		{"remaining alone", 200, head("RateLimit-Remaining: 42"), Answer{Remaining: 42}},
		{"draft 6", 200, head("RateLimit-Limit: 20", "RateLimit-Remaining: 7", "RateLimit-Reset: 8", "RateLimit-Policy: 100;w=50"),
			Answer{Policy: "100;w=50", Remaining: 7, Capacity: 20, Rate: 2, Window: 50 * s, Reset: 8 * s}},
		{"draft 3", 200, head("RateLimit-Limit: 20, 100;w=50", "RateLimit-Remaining: 7"), Answer{Policy: "20", Remaining: 7, Capacity: 20}},
		{"rate from reset", 200, head("RateLimit-Limit: 20", "RateLimit-Remaining: 10", "RateLimit-Reset: 5"),
			Answer{Policy: "20", Remaining: 10, Capacity: 20, Rate: 2, Derived: true, Reset: 5 * s}},
		{"Reset of a denial gives no rate", 429, head("RateLimit-Limit: 20", "RateLimit-Remaining: 0", "RateLimit-Reset: 1", "Retry-After: 2"),
			Answer{Denied: true, Policy: "20", Capacity: 20, Wait: 2 * s, Reset: s}},
		{"draft 7", 200, head("RateLimit: limit=10, remaining=9, reset=4", "RateLimit-Policy: 10;w=4"),
			Answer{Policy: "10;w=4", Remaining: 9, Capacity: 10, Rate: 2.5, Window: 4 * s, Reset: 4 * s}},
		{"draft 7 without a policy", 200, head("RateLimit: limit=10,remaining=9,reset=4"),
			Answer{Policy: "10", Remaining: 9, Capacity: 10, Rate: 0.25, Derived: true, Reset: 4 * s}},
		{"X-RateLimit", 200, head("X-RateLimit-Limit: 20", "X-RateLimit-Remaining: 10", "X-RateLimit-Reset: 5"),
			Answer{Policy: "20", Remaining: 10, Capacity: 20, Rate: 2, Derived: true, Reset: 5 * s}},
		{"X-RateLimit, Reset is a Unix time", 200, head("X-RateLimit-Limit: 20", "X-RateLimit-Remaining: 10", "X-RateLimit-Reset: 1800000005"),
			Answer{Policy: "20", Remaining: 10, Capacity: 20, Rate: 2, Derived: true, Reset: 5 * s}},
		{"Reset in milliseconds", 200, head("X-RateLimit-Remaining: 10", "X-RateLimit-Reset: 1800000005500"), Answer{Remaining: 10, Reset: 5500 * time.Millisecond}},
		{"Reset by the clock of a server an hour fast", 200, head("X-RateLimit-Remaining: 10", "X-RateLimit-Reset: 1800003605", "Date: "+date(time.Hour)), Answer{Remaining: 10, Reset: 5 * s}},
		{"Reset has passed", 200, head("X-RateLimit-Remaining: 10", "X-RateLimit-Reset: 1700000000"), Answer{Remaining: 10}},
		{"draft 11, the least remaining", 200, head(`RateLimit-Policy: "burst";q=10;w=5, "daily";q=10000;w=86400`, `RateLimit: "burst";r=9;t=1, "daily";r=3;t=9`),
			Answer{Policy: `"daily"`, Remaining: 3, Capacity: 10000, Rate: 10000.0 / 86400, Window: 24 * time.Hour, Reset: 9 * s,
				Others: [3]Limit{{Policy: `"burst"`, Remaining: 9, Capacity: 10, Rate: 2, Window: 5 * s, Reset: s}}}},
		{"draft 8 of express-rate-limit", 200, head(`RateLimit-Policy: "10-in-4sec"; q=10; w=4; pk=:MTI3:`, `RateLimit: "10-in-4sec"; r=9; t=4`),
			Answer{Policy: `"10-in-4sec"`, Remaining: 9, Capacity: 10, Rate: 2.5, Window: 4 * s, Reset: 4 * s}},
		{"draft 11 on two lines", 200, head(`RateLimit: "a";r=9`, `RateLimit: "b";r=5`), Answer{Policy: `"b"`, Remaining: 5, Others: [3]Limit{{Policy: `"a"`, Remaining: 9}}}},
		{"draft 7 on several lines", 200, head("RateLimit: limit=10;x=1, remaining=5", "RateLimit: remaining=9, reset=4", "RateLimit-Policy: x", "RateLimit-Policy: 10;w=4"),
			Answer{Policy: "10;w=4", Remaining: 9, Capacity: 10, Rate: 2.5, Window: 4 * s, Reset: 4 * s}},
		{"draft 11, units of the quotas", 200, head(`RateLimit-Policy: "req";q=10;w=5;qu="requests", "conc";q=4;qu="concurrent-requests"`, `RateLimit: "conc";r=1, "req";r=9;t=1`),
			Answer{Policy: `"req"`, Remaining: 9, Capacity: 10, Rate: 2, Window: 5 * s, Reset: s}},
		{"draft 11, bytes", 200, head(`RateLimit-Policy: "bytes";q=65535;qu="content-bytes";w=10`, `RateLimit: "bytes";r=0;t=5`), none},
		{"draft 11, requests at the same time", 200, head(`RateLimit-Policy: "conc";q=4;qu="concurrent-requests"`, `RateLimit: "conc";r=1`), none},
		{"a denial by bytes", 429, head(`RateLimit-Policy: "bytes";q=65535;qu="content-bytes";w=10`, `RateLimit: "bytes";r=0;t=5`), denied(5 * s)},
		{"a denial by requests at the same time", 429, head(`RateLimit-Policy: "conc";q=4;qu="concurrent-requests"`, `RateLimit: "conc";r=1`), denied(0)},
		{"draft 11 before draft 6", 200, head(`RateLimit: "a";r=9`, "RateLimit-Remaining: 5"), Answer{Policy: `"a"`, Remaining: 9}},
		{"names with separators", 200, head(`RateLimit: "a;r=1,\"";r=9`, `RateLimit-Policy: "a;r=1,\"";q=10;w=5`),
			Answer{Policy: `"a;r=1,\""`, Remaining: 9, Capacity: 10, Rate: 2, Window: 5 * s}},

		{"Twitter", 200, head("X-Rate-Limit-Limit: 900", "X-Rate-Limit-Remaining: 890", "X-Rate-Limit-Reset: 1800000010"),
			Answer{Policy: "900", Remaining: 890, Capacity: 900, Rate: 1, Derived: true, Reset: 10 * s}},
		{"Twitter's Reset without its limit", 200, head("X-Rate-Limit-Remaining: 890", "X-Rate-Limit-Reset: 1800000010"), Answer{Remaining: 890, Reset: 10 * s}},
		{"Vimeo", 200, head("X-RateLimit-Limit: 100", "X-RateLimit-Remaining: 90", "X-RateLimit-Reset: "+noon.Add(5*s).Format(time.RFC3339)),
			Answer{Policy: "100", Remaining: 90, Capacity: 100, Rate: 2, Derived: true, Reset: 5 * s}},
		{"Atlassian", 200, head("X-RateLimit-Remaining: 90", "X-RateLimit-Reset: "+noon.Add(time.Minute).Format("2006-01-02T15:04Z07:00")), Answer{Remaining: 90, Reset: time.Minute}},
		{"Reset as an HTTP date", 200, head("X-RateLimit-Remaining: 90", "X-RateLimit-Reset: "+date(5*s)), Answer{Remaining: 90, Reset: 5 * s}},
		{"Reset as Go writes a date", 200, head("X-RateLimit-Remaining: 90", "X-RateLimit-Reset: "+noon.Add(5*s).Format(time.RFC1123)), Answer{Remaining: 90, Reset: 5 * s}},
		{"Reset in milliseconds that reads as 35 days", 200, head("RateLimit: limit=100, remaining=9, reset=3000000", "RateLimit-Policy: 100;w=3600"),
			Answer{Policy: "100;w=3600", Remaining: 9, Capacity: 100, Rate: 1.0 / 36, Window: time.Hour, Reset: 2 * time.Hour}},
		{"Reset of a bucket that is larger than its quota", 200, head("RateLimit: limit=300, remaining=9, reset=20", "RateLimit-Policy: 15;w=1"),
			Answer{Policy: "15;w=1", Remaining: 9, Capacity: 300, Rate: 15, Window: s, Reset: 20 * s}},
		{"from a cache", 200, head("RateLimit-Limit: 20", "RateLimit-Remaining: 0", "RateLimit-Reset: 600", "Age: 3"), Answer{Old: true, Remaining: -1}},
		{"from a cache that asked the server", 200, head("RateLimit-Limit: 20", "RateLimit-Remaining: 7", "Age: 0"), Answer{Policy: "20", Remaining: 7, Capacity: 20}},
		{"a denial from a cache", 429, head("RateLimit-Limit: 20", "RateLimit-Remaining: 0", "RateLimit-Reset: 600", "Retry-After: 5", "Age: 3"), Answer{Denied: true, Old: true, Wait: 5 * s, Remaining: -1}},
		{"GitHub's resource", 200, head("X-RateLimit-Limit: 30", "X-RateLimit-Remaining: 29", "X-RateLimit-Resource: search"),
			Answer{Policy: "30", Remaining: 29, Capacity: 30, Resource: "search"}},
		{"Zendesk", 200, head("X-Rate-Limit: 700", "X-Rate-Limit-Remaining: 699"), Answer{Policy: "700", Remaining: 699, Capacity: 700}},
		{"Shopify", 200, head("X-Shopify-Shop-Api-Call-Limit: 32/40"), Answer{Policy: "40", Remaining: 8, Capacity: 40}},
		{"OpenAI", 200, head("X-RateLimit-Limit-Requests: 60", "X-RateLimit-Remaining-Requests: 0", "X-RateLimit-Reset-Requests: 6m0s"),
			Answer{Policy: "60", Capacity: 60, Rate: 60.0 / 360, Derived: true, Reset: 6 * time.Minute}},
		{"OpenAI, milliseconds", 200, head("X-RateLimit-Remaining-Requests: 59", "X-RateLimit-Reset-Requests: 12ms"), Answer{Remaining: 59, Reset: 12 * time.Millisecond}},
		{"Reddit", 200, head("X-RateLimit-Used: 6", "X-RateLimit-Remaining: 594.0", "X-RateLimit-Reset: 12"),
			Answer{Policy: "600", Remaining: 594, Capacity: 600, Rate: 0.5, Derived: true, Reset: 12 * s}},
		{"Discord", 200, head("X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 4", "X-RateLimit-Reset: 1800000002.4", "X-RateLimit-Reset-After: 1.25"),
			Answer{Policy: "5", Remaining: 4, Capacity: 5, Rate: 0.8, Derived: true, Reset: 1250 * time.Millisecond}},

		{"our denial that no wait helps", 429, head("RateLimit-Policy: 10;w=1"), Answer{Denied: true, Never: true, Remaining: -1}},
		{"the same in draft 11", 429, head(`RateLimit: "a";r=10`, `RateLimit-Policy: "a";q=10;w=1`),
			Answer{Denied: true, Never: true, Policy: `"a"`, Remaining: 10, Capacity: 10, Rate: 10, Window: s}},
		{"a denial by another limit than that of draft 6, which is full", 429, head("RateLimit-Limit: 10", "RateLimit-Remaining: 10", "RateLimit-Reset: 0", "RateLimit-Policy: 10;w=1"),
			Answer{Denied: true, Policy: "10;w=1", Remaining: 10, Capacity: 10, Rate: 10, Window: s}},
		{"a denial of draft 11 without times", 429, head(`RateLimit: "a";r=0`, `RateLimit-Policy: "a";q=10;w=1`),
			Answer{Denied: true, Policy: `"a"`, Capacity: 10, Rate: 10, Window: s}},

		{"429 that says it is final", 429, head("X-Should-Retry: false", "Retry-After: 5"), Answer{Denied: true, Wait: 5 * s, Never: true, Remaining: -1}},
		{"the same of Stripe", 429, head("Stripe-Should-Retry: false"), Answer{Denied: true, Never: true, Remaining: -1}},
		{"429 that may be sent again", 429, head("X-Should-Retry: true", "Retry-After: 5"), denied(5 * s)},
		{"Retry-After in milliseconds", 429, head("Retry-After: 1", "Retry-After-Ms: 250"), denied(250 * time.Millisecond)},
		{"the same of Azure", 429, head("X-Ms-Retry-After-Ms: 1500"), denied(1500 * time.Millisecond)},
		{"429 alone", 429, head(), denied(0)},
		{"503 alone", 503, head(), down(false, 0)},
		{"403 alone", 403, head(), none},
		{"429 with Retry-After", 429, head("Retry-After: 5"), denied(5 * s)},
		{"503 with Retry-After", 503, head("Retry-After: 5"), down(true, 5*s)},
		{"503 with nothing remaining", 503, head("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5"), Answer{Denied: true, Wait: 5 * s, Reset: 5 * s}},
		{"503 with something remaining", 503, head("X-RateLimit-Remaining: 3"), Answer{Down: true, Remaining: 3}},
		{"403 with Retry-After, GitHub's secondary limit", 403, head("Retry-After: 5", "X-RateLimit-Remaining: 4000"), Answer{Denied: true, Wait: 5 * s, Remaining: 4000}},
		{"403 with nothing remaining, GitHub's primary limit", 403, head("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1800000005"), Answer{Denied: true, Wait: 5 * s, Reset: 5 * s}},
		{"403 with something remaining", 403, head("X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 1800000005"), Answer{Remaining: 1, Reset: 5 * s}},
		{"429 with a Reset and nothing remaining", 429, head("X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5"), Answer{Denied: true, Wait: 5 * s, Reset: 5 * s}},
		{"429 with a Reset alone", 429, head("X-RateLimit-Reset: 5"), Answer{Denied: true, Wait: 5 * s, Reset: 5 * s, Remaining: -1}},
		{"429 of draft 7", 429, head("RateLimit: limit=10, remaining=0, reset=4"), Answer{Denied: true, Wait: 4 * s, Reset: 4 * s, Policy: "10", Capacity: 10}},
		{"429 of draft 11", 429, head(`RateLimit: "a";r=0;t=4`), Answer{Denied: true, Wait: 4 * s, Reset: 4 * s, Policy: `"a"`}},
		{"Reset of another limit than the one that denied", 429, head("X-RateLimit-Remaining: 4000", "X-RateLimit-Reset: 5"), Answer{Denied: true, Remaining: 4000, Reset: 5 * s}},
		{"Retry-After before Reset", 429, head("Retry-After: 1", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 5"), Answer{Denied: true, Wait: s, Reset: 5 * s}},
		{"a date", 503, head("Retry-After: " + date(time.Minute)), down(true, time.Minute)},
		{"a date on a server whose clock is an hour fast", 503, head("Retry-After: "+date(61*time.Minute), "Date: "+date(time.Hour)), down(true, time.Minute)},
		{"a date that has passed", 503, head("Retry-After: " + date(-time.Minute)), down(true, 0)},
		{"Retry-After on success", 200, head("Retry-After: 5"), none},
		{"Retry-After of a century", 429, head("Retry-After: 3155760000"), denied(Max)},

		{"malformed remaining", 200, head("RateLimit-Remaining: -1"), none},
		{"malformed remaining falls back", 200, head("RateLimit-Remaining: x", "X-RateLimit-Remaining: 4"), Answer{Remaining: 4}},
		{"malformed item", 200, head(`RateLimit: "a", "b";r=x, c;r=1, "d";r=4`), Answer{Policy: `"d"`, Remaining: 4}},
		{"malformed policy", 200, head("RateLimit-Remaining: 4", "RateLimit-Policy: ;w=, 10;w=0, x;w=5"), Answer{Remaining: 4}},
		{"malformed dictionary", 200, head("RateLimit: limit, =, remaining=x"), none},
		{"malformed Retry-After", 429, head("Retry-After: soon"), denied(0)},
		{"malformed Reset", 429, head("X-RateLimit-Reset: -5"), denied(0)},
		{"malformed Shopify", 200, head("X-Shopify-Shop-Api-Call-Limit: x/40"), none},
		{"a number of 16 digits", 200, head("RateLimit-Remaining: 1000000000000000"), none},
	} {
		c.want.Later = c.want.Later || c.want.Denied
		c.want.Date, _ = parseDate(c.header.Get("Date"))
		if got := Read(noon, c.status, c.header); got != c.want {
			t.Errorf("%s: got %+v; want %+v", c.name, got, c.want)
		}
	}
}

// Every response is read, so that costs next to no memory, with fields or without.
func TestReadAllocates(t *testing.T) {
	for _, h := range []http.Header{
		head("Content-Type: text/plain"),
		head("RateLimit: limit=10, remaining=9, reset=4", "RateLimit-Policy: 10;w=4"),
		head(`RateLimit: "burst";r=9;t=1, "daily";r=9999;t=9`, `RateLimit-Policy: "burst";q=10;w=1, "daily";q=10000;w=86400`),
	} {
		if got := testing.AllocsPerRun(100, func() { Read(noon, 200, h) }); got > 3 {
			t.Errorf("%v: got %v allocations; want at most 3", h, got)
		}
	}
}

// Whatever the header, every figure is a number and none is negative, apart from a missing Remaining.
func FuzzRead(f *testing.F) {
	f.Add(429, "7", `"a";r=0;t=1`, `"a";q=10;w=1`, "10", "0", "3")
	f.Add(200, "", "limit=10, remaining=9, reset=4", "100;w=60", "100", "42", "1800000005")
	f.Add(403, "Wed, 21 Oct 2015 07:28:00 GMT", `"\`, `;;=,"`, "-1", "99999999999999999999", "NaN")
	f.Fuzz(func(t *testing.T, status int, after, list, policy, limit, remaining, reset string) {
		got := Read(noon, status, http.Header{
			"Retry-After": {after}, "Ratelimit": {list}, "Ratelimit-Policy": {policy},
			"Ratelimit-Limit": {limit}, "Ratelimit-Remaining": {remaining}, "X-Ratelimit-Remaining": {remaining},
			"Ratelimit-Reset": {reset}, "X-Ratelimit-Reset": {reset},
		})
		sum := got.Remaining + got.Capacity + got.Rate
		if math.IsNaN(sum) || math.IsInf(sum, 0) || got.Remaining < -1 || got.Rate < 0 || got.Capacity < 0 ||
			min(got.Wait, got.Window, got.Reset) < 0 || max(got.Wait, got.Window, got.Reset) > Max || got.Wait > 0 && !got.Later {
			t.Fatalf("got %+v", got)
		}
	})
}
