package pacer

import (
	"math"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// A step is an event in the life of a Pacer, and the sleep of the next request after it.
type step struct {
	after  float64 // seconds after the step before
	status int     // of a response; 0 for none
	header http.Header
	sleep  float64 // seconds, to within 1 % and a millisecond; noRequest for none
}

const noRequest = -1

// next is Next for a request that sleeps however long it has to.
func (p *Pacer) next(now time.Time) time.Duration {
	d, _ := p.Next(now, math.MaxInt64)
	return d
}

func remaining(n int) http.Header { return head("RateLimit-Remaining: " + strconv.Itoa(n)) }

func full(n int) http.Header {
	return head("RateLimit-Limit: 4500", "RateLimit-Remaining: "+strconv.Itoa(n), "RateLimit-Policy: 4500;w=3600")
}

func TestPacer(t *testing.T) {
	atEmpty := math.Exp(1 / exponentScale) // the factor on an interval when the bucket is empty
	for _, c := range []struct {
		rule  string
		steps []step
	}{
		{"without fields there is no pacing", []step{
			{0, 0, nil, 0}, {0, 0, nil, 0}, {1, 200, head(), 0}, {0, 200, head(), 0}, {0, 503, head(), 0},
		}},
		{"a full bucket is used without pause", []step{
			{0, 0, nil, 0}, {0.1, 200, remaining(4499), 0}, {0.1, 200, remaining(100), 0}, {0.1, 200, remaining(9), 0},
		}},
		{"pacing begins when remaining falls below the reserve, at half of assumedRate", []step{
			{0, 0, nil, 0}, {0.1, 200, remaining(7), 1.9}, {0, 0, nil, 3.9},
		}},
		{"requests in flight count as taken", []step{
			{0, 0, nil, 0}, {0, 0, nil, 0}, {0, 0, nil, 0}, {0.1, 200, remaining(9), 1.7},
		}},
		{"pacing begins with a denial, at half of the server's rate where that is a share of 1", []step{
			{0, 0, nil, 0}, {0, 429, full(0), 0.8 * atEmpty},
		}},
		{"Retry-After holds all requests", []step{
			{0, 0, nil, 0}, {0, 0, nil, 0}, {0, 429, head("Retry-After: 7"), 7}, {2, 0, nil, 5.19}, {0, 503, head("Retry-After: 90"), 90},
		}},
		{"a Retry-After of a year holds requests for a day", []step{
			{0, 0, nil, 0}, {0, 503, head("Retry-After: 31536000"), 24 * 3600},
		}},
		{"a response with more remaining speeds the next request up at once", []step{
			{0, 0, nil, 0}, {0, 429, remaining(0), 2}, {2, 200, remaining(100), 0},
		}},
		{"denials of requests in flight count once", []step{
			{0, 0, nil, 0}, {0, 0, nil, 0}, {0, 0, nil, 0}, {0, 429, remaining(0), noRequest}, {0, 429, remaining(0), noRequest}, {0, 429, remaining(0), 2},
		}},
	} {

		p := Pacer{Rand: func() float64 { return 0 }}
		now := noon
		for i, s := range c.steps {
			now = now.Add(time.Duration(s.after * float64(time.Second)))
			if s.status != 0 {
				p.Done(now, s.status, s.header)
			}

			if s.sleep == noRequest {
				continue
			}
			if got := p.next(now).Seconds(); math.Abs(got-s.sleep) > 0.01*s.sleep+0.001 {
				t.Errorf("%s: step %d: got a sleep of %.3f s; want %.3f", c.rule, i, got, s.sleep)
			}
		}
	}
}

// If denials are the only sign of a limit, a single one takes a tenth of the rate at most, and the rate
// grows back by time and far beyond.
func TestPacerRecovers(t *testing.T) {
	for _, every := range []time.Duration{10 * time.Millisecond, time.Minute} {
		p := Pacer{Rand: func() float64 { return 0 }}
		now := noon
		for range 1000 {

			p.next(now)
			now = now.Add(every)
			p.Done(now, http.StatusOK, nil)
		}
		p.next(now)
		p.Done(now, http.StatusTooManyRequests, nil)
		p.next(now.Add(every))
		p.Done(now.Add(every), http.StatusOK, nil)
		denied := p.interval()
		if most := max(every*10/9, 250*time.Millisecond); denied > most {
			t.Errorf("a denial at one in %v: got an interval of %v; want at most %v", every, denied, most)
		}

		began := now
		for p.interval() > every/4 && now.Sub(began) < 10*time.Hour {
			now = now.Add(p.next(now))
			p.Again(now)
			p.Done(now, http.StatusOK, nil)
		}

		if took, most := now.Sub(began), max(30*time.Minute, 100*every); took > most {
			t.Errorf("a denial at one in %v: got four times the rate after %v; want %v at most", every, took, most)
		}
	}
}

// However many requests are denied, an interval is at most a minute.
func TestPacerBounded(t *testing.T) {
	p := Pacer{Rand: func() float64 { return 0 }}
	now := noon
	for range 1000 {
		d := p.next(now)
		if d > maxInterval {
			t.Fatalf("got a sleep of %v; want at most %v", d, maxInterval)
		}
		now = now.Add(d)
		p.Again(now)
		p.Done(now.Add(time.Millisecond), http.StatusTooManyRequests, remaining(0))
		now = now.Add(2 * time.Millisecond)
	}
	if got := p.interval(); got != maxInterval {
		t.Errorf("got an interval of %v; want %v", got, maxInterval)
	}
}

// A queue of cancelled requests does not delay later ones.
func TestPacerForgetsQueue(t *testing.T) {
	p := Pacer{Rand: func() float64 { return 0 }}
	p.next(noon)
	p.Done(noon, http.StatusTooManyRequests, remaining(0))
	for range 1000 {
		p.next(noon)
	}
	for range 1000 {
		p.Done(noon, 0, nil)
	}
	if got, most := p.next(noon), 10*time.Second; got > most {
		t.Errorf("got a sleep of %v; want at most %v", got, most)
	}
}

// A queue of many requests at a very low rate is no overflow, which would end the pacing.
func TestLongQueue(t *testing.T) {
	p := Pacer{Rand: func() float64 { return 0.5 }}
	const inFlight = 100_000
	for range inFlight {
		p.next(noon) // all go at once, before the first response
	}
	p.Done(noon, 200, head("RateLimit-Limit: 10", "RateLimit-Remaining: 0", "RateLimit-Policy: 1;w=999999999"))
	now := noon.Add(time.Second)
	if first, second := p.next(now), p.next(now); first < maxHold/2 || second < first+maxHold/2 {
		t.Errorf("got sleeps of %v and %v; want them an interval of about %v apart", first, second, maxHold)
	}
}
