package pacer

import (
	"net/http"
	"testing"
	"time"
)

// Denials outrank a remaining that contradicts them, and a server without fields is paced by denials
// alone: few requests are denied, and most of the limit is used.
func TestDenialsAlone(t *testing.T) {
	for name, fields := range map[string]http.Header{
		"none":          head(),
		"always 4000":   head("X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 4000", "X-RateLimit-Reset: 3600"),
		"a daily limit": head("RateLimit-Limit: 100000", "RateLimit-Remaining: 90000", "RateLimit-Policy: 100000;w=86400"),
	} {
		const perSecond, length = 10, 10 * time.Minute
		level, last, denied := 10.0, time.Duration(0), 0
		p := Pacer{Rand: func() float64 { return 0.5 }}

		sent := paceAlone(&p, length, func(at time.Duration) (int, http.Header) {
			level, last = min(level+(at-last).Seconds()*perSecond, 10), at
			if level < 1 {
				denied++
				return http.StatusTooManyRequests, fields
			}
			level--
			return http.StatusOK, fields
		})

		if most := len(sent) * 3 / 100; denied > most {
			t.Errorf("%s: got %d of %d denied; want at most %d", name, denied, len(sent), most)
		}
		if least := int(length.Seconds()*perSecond) * 95 / 100; len(sent)-denied < least {
			t.Errorf("%s: got %d allowed; want at least %d", name, len(sent)-denied, least)
		}
	}
}

// While all requests are denied, the interval grows to MaxInterval.
func TestDenialsOnly(t *testing.T) {
	for _, longest := range []time.Duration{0, 5 * time.Second} {
		p := Pacer{Rand: func() float64 { return 0 }, MaxInterval: longest}
		want := longest
		if want == 0 {
			want = maxBlindInterval
		}
		paceAlone(&p, 5*time.Hour, func(time.Duration) (int, http.Header) { return http.StatusTooManyRequests, nil })
		if got := p.interval(); got < want-time.Millisecond || got > want {
			t.Errorf("MaxInterval %v: got %v; want %v", longest, got, want)
		}
	}
}
