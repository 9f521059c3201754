package pacer

import (
	"math"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// A step is what happens to a Pacer after so many seconds, and the sleep that
// the next request is then told.
type step struct {
	after  float64 // seconds since the step before
	status int     // of an answer to a request under way; 0 for no answer
	header http.Header
	sleep  float64 // seconds, to within 1 % and a millisecond; negative when no request asks
}

const silent = -1 // no request asks

func left(n int) http.Header { return head("RateLimit-Remaining: " + strconv.Itoa(n)) }

func full(n int) http.Header {
	return head("RateLimit-Limit: 4500", "RateLimit-Remaining: "+strconv.Itoa(n), "RateLimit-Policy: 4500;w=3600")
}

func TestPacer(t *testing.T) {
	atNothing := math.Exp(1 / leanOver) // by which an empty bucket stretches a gap
	for _, c := range []struct {
		rule  string
		start time.Duration
		steps []step
	}{
		{"a server that tells nothing is not paced", 0, []step{
			{0, 0, nil, 0}, {0, 0, nil, 0}, {1, 200, head(), 0}, {0, 200, head(), 0}, {0, 503, head(), 0},
		}},
		{"before the first answer Start is slept, and never again", time.Second, []step{
			{0, 0, nil, 1}, {0, 0, nil, 1}, {1, 200, head(), 0}, {0, 200, head(), 0},
		}},
		{"a full bucket is spent without pause", 0, []step{
			{0, 0, nil, 0}, {0.1, 200, left(4499), 0}, {0.1, 200, left(100), 0}, {0.1, 200, left(9), 0},
		}},
		{"pacing begins when what is left falls below the reserve, at half of one a second", 0, []step{
			{0, 0, nil, 0}, {0.1, 200, left(7), 1.9}, {0, 0, nil, 3.9},
		}},
		{"what requests under way will take counts as taken", 0, []step{
			{0, 0, nil, 0}, {0, 0, nil, 0}, {0, 0, nil, 0}, {0.1, 200, left(9), 1.9},
		}},
		{"a refusal begins it too, at half of the rate that the server tells where that leaves a share of 1", 0, []step{
			{0, 0, nil, 0}, {0, 429, full(0), 0.8 * atNothing},
		}},
		{"Retry-After comes first, for everybody", 0, []step{
			{0, 0, nil, 0}, {0, 0, nil, 0}, {0, 429, head("Retry-After: 7"), 7}, {2, 0, nil, 7}, {0, 503, head("Retry-After: 90"), 90},
		}},
		{"a Retry-After of a year holds requests for a day", 0, []step{
			{0, 0, nil, 0}, {0, 503, head("Retry-After: 31536000"), 24 * 3600},
		}},
		{"an answer that finds more left speeds the next up at once", 0, []step{
			{0, 0, nil, 0}, {0, 429, left(0), 2}, {2, 200, left(100), 0},
		}},
		{"refusals of requests under way count once", 0, []step{
			{0, 0, nil, 0}, {0, 0, nil, 0}, {0, 0, nil, 0}, {0, 429, left(0), silent}, {0, 429, left(0), silent}, {0, 429, left(0), 2},
		}},
	} {
		p := Pacer{Start: c.start, Rand: func() float64 { return 0 }}
		now := noon
		for i, s := range c.steps {
			now = now.Add(time.Duration(s.after * float64(time.Second)))
			if s.status != 0 {
				p.Done(now, s.status, s.header)
			}
			if s.sleep == silent {
				continue
			}
			if got := p.Next(now).Seconds(); math.Abs(got-s.sleep) > 0.01*s.sleep+0.001 {
				t.Errorf("%s: step %d: got a sleep of %.3f s; want %.3f", c.rule, i, got, s.sleep)
			}
		}
	}
}

// While nothing but refusals tells of a limit, the pace is half of what it was,
// and regrows to be as good as none.
func TestPacerRecovers(t *testing.T) {
	p := Pacer{Rand: func() float64 { return 0 }}
	now := noon
	for range 1000 { // a hundred a second
		p.Next(now)
		now = now.Add(10 * time.Millisecond)
		p.Done(now, http.StatusOK, nil)
	}
	p.Next(now)
	p.Done(now, http.StatusTooManyRequests, nil)
	if got := p.gap(); got < 18*time.Millisecond || got > 22*time.Millisecond {
		t.Errorf("a refusal at 100 a second: got a gap of %v; want 20 ms", got)
	}
	for range 3 * 60 * 20 {
		p.Next(now)
		now = now.Add(50 * time.Millisecond)
		p.Done(now, http.StatusOK, nil)
	}
	if got := p.gap(); got > 5*time.Millisecond {
		t.Errorf("three minutes later: got a gap of %v; want at most 5 ms", got)
	}
}

// Whatever is refused for however long, the law asks for no more than a minute.
func TestPacerBounded(t *testing.T) {
	p := Pacer{Rand: func() float64 { return 0 }}
	now := noon
	for range 1000 {
		d := p.Next(now)
		if d > slowestGap {
			t.Fatalf("got a sleep of %v; want at most %v", d, slowestGap)
		}
		now = now.Add(d)
		p.Again(now)
		p.Done(now.Add(time.Millisecond), http.StatusTooManyRequests, left(0))
		now = now.Add(2 * time.Millisecond)
	}
	if got := p.gap(); got != slowestGap {
		t.Errorf("got a gap of %v; want %v", got, slowestGap)
	}
}

// A queue of requests that were given up does not hold up those that come later.
func TestPacerForgetsQueue(t *testing.T) {
	p := Pacer{Rand: func() float64 { return 0 }}
	p.Next(noon)
	p.Done(noon, http.StatusTooManyRequests, left(0))
	for range 1000 {
		p.Next(noon)
	}
	for range 1000 {
		p.Done(noon, 0, nil)
	}
	if got, most := p.Next(noon), 10*time.Second; got > most {
		t.Errorf("got a sleep of %v; want at most %v", got, most)
	}
}
