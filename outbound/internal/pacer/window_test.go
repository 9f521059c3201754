package pacer

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// paceAlone sends requests one by one for a while to a server whose answer at a time is header, and
// returns when they were sent.
func paceAlone(p *Pacer, length time.Duration, answer func(at time.Duration) (status int, header http.Header)) (sent []time.Duration) {
	const latency = 20 * time.Millisecond
	now := noon
	for now.Sub(noon) < length {
		if d := p.next(now); d > 0 {
			for ; d > 0; d = p.Again(now) {
				now = now.Add(d)
			}
		}
		at := now.Sub(noon)
		sent = append(sent, at)
		status, header := answer(at)
		now = now.Add(latency)
		p.Done(now, status, header)
	}
	return sent
}

// fixedWindows returns the answers of a server that allows n requests in each period.
func fixedWindows(n int, period time.Duration, header func(remaining int, reset time.Duration) http.Header) (answer func(time.Duration) (int, http.Header), denied *int) {
	denied = new(int)
	window, used := time.Duration(-1), 0
	return func(at time.Duration) (int, http.Header) {
		if w := at / period; w != window {
			window, used = w, 0
		}
		status := http.StatusOK
		if used++; used > n {
			status = http.StatusTooManyRequests
			*denied++
		}
		return status, header(max(n-used, 0), (at/period+1)*period-at)
	}, denied
}

// In a fixed window nothing remaining holds until the reset, so that no request is denied; later
// requests are spread over the window, and the window is used up.
func TestFixedWindows(t *testing.T) {
	const n, period = 75, time.Minute
	seconds := func(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

	for name, header := range map[string]func(int, time.Duration) http.Header{
		"draft 6": func(remaining int, reset time.Duration) http.Header {
			return head("RateLimit-Limit: 75", fmt.Sprint("RateLimit-Remaining: ", remaining), fmt.Sprint("RateLimit-Reset: ", seconds(reset)), "RateLimit-Policy: 75;w=60")
		},
		"draft 7": func(remaining int, reset time.Duration) http.Header {
			return head(fmt.Sprintf("RateLimit: limit=75, remaining=%d, reset=%d", remaining, seconds(reset)), "RateLimit-Policy: 75;w=60")
		},
		"draft 11": func(remaining int, reset time.Duration) http.Header {
			return head(fmt.Sprintf(`RateLimit: "a";r=%d;t=%d`, remaining, seconds(reset)), `RateLimit-Policy: "a";q=75;w=60`)
		},
		"milliseconds, the length unknown": func(remaining int, reset time.Duration) http.Header {
			return head("X-RateLimit-Limit: 75", fmt.Sprint("X-RateLimit-Remaining: ", remaining), fmt.Sprint("X-RateLimit-Reset: ", seconds(reset)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer, denied := fixedWindows(n, period, header)
			p := Pacer{Rand: func() float64 { return 0.5 }}
			sent := paceAlone(&p, 10*period, answer)

			if *denied > 0 {
				t.Errorf("got %d denied; want none", *denied)
			}
			if got, least := len(sent), 10*n*95/100; got < least {
				t.Errorf("got %d sent; want at least %d", got, least)
			}
			if !p.window.fixed {
				t.Error("the window is not known as fixed")
			}

			half := 0
			for _, at := range sent {
				if at > 9*period && at < 9*period+period/2 {
					half++
				}
			}
			if half < n/3 || half > 2*n/3 {
				t.Errorf("got %d of %d in the first half of the last window; want about half", half, n)
			}
		})
	}
}

// A bucket does not look like a fixed window, whatever its reset means.
func TestBucketIsNoFixedWindow(t *testing.T) {
	for name, reset := range map[string]func(level float64) float64{
		"until the bucket is full": func(level float64) float64 { return 20 - level },
		"until the next unit":      func(float64) float64 { return 1 },
	} {
		level, last := 20.0, time.Duration(0)
		p := Pacer{Rand: func() float64 { return 0.5 }}
		paceAlone(&p, 10*time.Minute, func(at time.Duration) (int, http.Header) {
			level, last = min(level+(at-last).Seconds(), 20), at
			if p.window.fixed || p.window.sliding {
				t.Fatalf("reset %s: after %v it counts as a window", name, at)
			}

			if level < 1 {
				return http.StatusTooManyRequests, head("Retry-After: 1", "RateLimit-Remaining: 0", "RateLimit-Reset: 1", "RateLimit-Limit: 20", "RateLimit-Policy: 60;w=60")
			}
			level--
			return http.StatusOK, head(fmt.Sprintf("RateLimit-Remaining: %d", int(level)), fmt.Sprintf("RateLimit-Reset: %d", int(reset(level)+1)), "RateLimit-Limit: 20", "RateLimit-Policy: 60;w=60")
		})
	}
}
