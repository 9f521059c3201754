package pacer

import (
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

// For every header, a sleep is at least 0 and at most a few times maxHold, and the share stays within
// its bounds.
func FuzzPacer(f *testing.F) {
	f.Add(429, "7", `"a";r=0;t=1`, `"a";q=10;w=1`, "10", "0", "3")
	f.Add(200, "", "", "100;w=60", "100", "42", "1800000005")
	f.Add(503, "Wed, 21 Oct 2015 07:28:00 GMT", `"\`, `;;=,"`, "-1", "99999999999999999999", "NaN")

	f.Fuzz(func(t *testing.T, status int, after, list, policy, limit, remaining, reset string) {
		h := http.Header{
			"Retry-After": {after}, "Ratelimit": {list}, "Ratelimit-Policy": {policy},
			"Ratelimit-Limit": {limit}, "Ratelimit-Remaining": {remaining}, "X-Ratelimit-Remaining": {remaining},
			"Ratelimit-Reset": {reset}, "X-Ratelimit-Reset": {reset},
		}

		p := Pacer{Rand: func() float64 { return 0.5 }}
		now := noon
		for i := range 20 {
			d := p.next(now)
			if most := 3 * maxHold; d < 0 || d > most {
				t.Fatalf("request %d: got a sleep of %v; want 0 to %v", i, d, most)
			}
			now = now.Add(d)
			if d == 0 {
			} else if d := p.Again(now); d < 0 || d > 2*maxHold {
				t.Fatalf("request %d: got another sleep of %v", i, d)
			}

			p.Done(now, status, h)
			if p.pacing && (!(p.share > 0) || p.share > maxShare) {
				t.Fatalf("request %d: got a share of %v", i, p.share)
			}
		}
	})
}
