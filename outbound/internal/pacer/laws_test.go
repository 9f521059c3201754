package pacer

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/internal/retryafter"
)

// The laws of the package, each with random sequences of answers in virtual time.

var epoch = time.Unix(1_800_000_000, 0)

// caller calls a route of the partner without pause, by its pacer.
type caller struct {
	*Pacer
	route string

	at    time.Duration // of its next step
	id    int64
	sleep bool // it has slept
	sent  int
}

// partner answers a request of a caller.
type partner func(c *caller, at time.Duration) (status int, h http.Header)

// run lets the callers call until a time; each request takes latency. seen gets each answer.
func run(callers []*caller, latency, from, until time.Duration, answer partner, seen func(c *caller, at time.Duration, a retryafter.Answer)) {
	for _, c := range callers {
		c.at = max(c.at, from)
	}
	for {
		c := callers[0]
		for _, other := range callers {
			if other.at < c.at {
				c = other
			}
		}
		if c.at >= until {
			return
		}

		now, wait := epoch.Add(c.at), time.Duration(0)
		if c.sleep {
			wait = c.Again(now, c.route, c.id)
		} else {
			c.id, wait, _ = c.Next(now, c.route, math.MaxInt64)
		}
		if wait < 0 || wait > 25*time.Hour {
			panic("a wait of " + wait.String())
		}
		if c.sleep = wait > 0; c.sleep {
			c.at += wait
			continue
		}

		status, h := answer(c, c.at)
		c.sent++
		c.at += latency
		a := retryafter.Read(now.Add(latency), status, h)
		if a.Down || status == 0 {
			c.Failed(now.Add(latency), a.Wait)
		} else {
			c.Answered(now.Add(latency), c.route, a)
		}
		if seen != nil {
			seen(c, c.at, a)
		}
	}
}

func newCallers(n int, r *rand.Rand) []*caller {
	all := make([]*caller, n)
	for i := range all {
		all[i] = &caller{Pacer: &Pacer{Rand: r.Float64}, at: time.Duration(r.Float64() * float64(time.Second))}
	}
	return all
}

// limited is a partner with a bucket or a fixed window, whose units and form may be changed.
type limited struct {
	units  float64
	window time.Duration
	burst  float64 // of a bucket; 0 for a window
	form   string  // told, after or none
	status int     // of a denial; 0 for 429

	left  float64
	since time.Duration
	begun bool
	count map[*caller]int // allowed
}

func (l *limited) answer(c *caller, at time.Duration) (int, http.Header) {
	if !l.begun {
		l.left, l.begun, l.count = max(l.burst, l.units*min(1/max(l.burst, 1e-9), 1)), true, map[*caller]int{}
		if l.burst == 0 {
			l.left = l.units
		}
	}

	var wait time.Duration
	if l.burst > 0 {
		l.left = min(l.left+l.units*(at-l.since).Seconds()/l.window.Seconds(), l.burst)
		l.since = at
		wait = time.Duration((1 - l.left) * float64(l.window) / l.units)
	} else {
		if n := (at - l.since) / l.window; n > 0 {
			l.since, l.left = l.since+n*l.window, l.units
		}
		wait = l.since + l.window - at
	}

	h := http.Header{}
	status := http.StatusOK
	if l.left < 1 {
		if status = l.status; status == 0 {
			status = http.StatusTooManyRequests
		}
		if l.form != "none" {
			h.Set("Retry-After", seconds(wait))
		}
	} else {
		l.left--
		l.count[c]++
	}
	if l.form == "told" {
		reset, most := wait, l.units
		if l.burst > 0 {
			reset, most = time.Duration((l.burst-l.left)*float64(l.window)/l.units), l.burst
		}
		h.Set("RateLimit-Limit", strconv.Itoa(int(most)))
		h.Set("RateLimit-Remaining", strconv.Itoa(int(l.left)))
		h.Set("RateLimit-Reset", seconds(reset))
		h.Set("RateLimit-Policy", strconv.Itoa(int(l.units))+";w="+seconds(l.window))
	}
	return status, h
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((max(d, 0)+time.Second-1)/time.Second), 10)
}

// Law 1: nothing is sent before a wait that was told is over; it is believed for a day.
func TestToldIsObeyed(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := newCallers(1, r)
		var until time.Duration
		run(c, 50*time.Millisecond, 0, 1000*time.Hour, func(_ *caller, at time.Duration) (int, http.Header) {
			if at < until {
				t.Fatalf("seed %d: sent %v before a told wait is over", seed, until-at)
			}
			if c[0].sent > 300 {
				c[0].at = 2000 * time.Hour
			}
			h := http.Header{}
			status := []int{200, 200, 429, 503, 403}[r.IntN(5)]
			wait := time.Duration(math.Exp(r.Float64()*14)) * time.Second
			switch r.IntN(3) {
			case 0:
				h.Set("Retry-After", seconds(wait))
			case 1:
				h.Set("RateLimit-Limit", []string{"", "0", "10"}[r.IntN(3)])
				h.Set("RateLimit-Remaining", strconv.Itoa(r.IntN(3)))
				h.Set("RateLimit-Reset", seconds(wait))
				h.Set("RateLimit-Policy", "10;w=60")
			}
			return status, h
		}, func(_ *caller, at time.Duration, a retryafter.Answer) {
			if a.Later {
				until = max(until, at+min(a.Wait, 24*time.Hour))
			}
		})
	}
}

// Law 2: a partner without a limit that fails now and then gets what it can take, for ever, and failures change
// no pace.
func TestFailuresAreNoDenials(t *testing.T) {
	for _, after := range []bool{true, false} {
		r := rand.New(rand.NewPCG(1, 2))
		c := newCallers(1, r)
		served := 0
		const every, out, latency = 5 * time.Minute, 30 * time.Second, time.Second
		run(c, latency, 0, 24*time.Hour, func(_ *caller, at time.Duration) (int, http.Header) {
			left := out - at%every
			switch {
			case left <= 0:
				served++
				return 200, http.Header{}
			case after:
				return 503, http.Header{"Retry-After": {seconds(left)}}
			case r.IntN(2) == 0:
				return 0, nil
			}
			return 503, http.Header{}
		}, nil)
		if most := (24 * time.Hour).Seconds() * 0.9 / latency.Seconds(); float64(served) < 0.9*most {
			t.Errorf("Retry-After %v: served %d in a day; want at least nine tenths of %.0f", after, served, most)
		}
	}

	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		c := newCallers(1, r)
		l := &limited{units: 5 + 100*r.Float64(), window: time.Minute, form: "none"}
		run(c, 50*time.Millisecond, 0, 20*time.Minute, l.answer, nil)
		before := c[0].limits[name{}].pace
		run(c, 50*time.Millisecond, c[0].at, c[0].at+time.Hour, func(*caller, time.Duration) (int, http.Header) { return 503, nil }, nil)
		if after := c[0].limits[name{}].pace; after != before {
			t.Errorf("seed %d: an hour of failures made a pace of %v into %v", seed, before, after)
		}
	}
}

// Law 2: a 503 is a denial where its fields say that nothing remains.
func TestUnavailableAsTheLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	c := newCallers(3, r)
	l := &limited{units: 60, window: time.Minute, form: "told", status: 503}
	run(c, 50*time.Millisecond, 0, time.Hour, l.answer, nil)
	sent, served := total(c, l)
	if served < 57*60 || float64(sent) > 1.05*float64(served) {
		t.Errorf("served %d of %d; want nearly 3600 with few denied", served, sent)
	}
}

func total(callers []*caller, l *limited) (sent, served int) {
	for _, c := range callers {
		sent += c.sent
		served += l.count[c]
	}
	return sent, served
}

// Law 3: whatever the limit was before, clients get half of it within ten windows, ten minutes or sixty
// answers each, whichever is longest: with fewer answers nobody can know.
func TestRecovers(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 5))
		n := 1 + r.IntN(5)
		window := time.Duration(math.Exp(r.Float64()*8) * float64(time.Second))
		l := &limited{units: float64(n) * (10 + 100*r.Float64()), window: window, form: []string{"told", "after", "none"}[r.IntN(3)]}
		if r.IntN(2) == 0 {
			l.burst = max(3, l.units*r.Float64())
		}

		full := l.units
		c := newCallers(n, r)
		run(c, 20*time.Millisecond, 0, 5*window, l.answer, nil)
		l.units /= 10
		run(c, 20*time.Millisecond, 5*window, 10*window, l.answer, nil)
		l.units = full

		answers := time.Duration(60 * float64(n) * 10 / full * float64(window))
		start := 10*window + max(10*window, 10*time.Minute, answers)
		run(c, 20*time.Millisecond, 10*window, start, l.answer, nil)
		_, before := total(c, l)
		span := max(3*window, time.Minute)
		run(c, 20*time.Millisecond, start, start+span, l.answer, nil)
		_, after := total(c, l)
		if want := full * span.Seconds() / window.Seconds() / 2; float64(after-before) < 0.9*want {
			t.Errorf("seed %d: %d clients of %.0f in %v, burst %.0f, %s: served %d in %v; want %.0f", seed, n, full, window, l.burst, l.form, after-before, span, want)
		}
	}
}

// Law 3: of two windows that no field tells, neither starves the other.
func TestTwoWindows(t *testing.T) {
	for _, form := range []string{"after", "none"} {
		for _, long := range []limited{{units: 600, window: time.Hour}, {units: 5000, window: 24 * time.Hour}} {
			r := rand.New(rand.NewPCG(1, 6))
			c := newCallers(1, r)
			short := &limited{units: 60, window: time.Minute, form: form}
			long.form = form
			run(c, 100*time.Millisecond, 0, 10*long.window, func(c *caller, at time.Duration) (int, http.Header) {
				status, h := short.answer(c, at)
				if status == http.StatusOK {
					status, h = long.answer(c, at)
				}
				return status, h
			}, nil)
			if served := long.count[c[0]]; float64(served) < 10*long.units/2 {
				t.Errorf("60 a minute and %.0f in %v, %s: served %d; want at least half", long.units, long.window, form, served)
			}
		}
	}
}

// Law 4: while nothing is allowed and nothing told, callers ask one at a time, at growing intervals.
func TestNoStorm(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 7))
		status := []int{429, 503, 0}[r.IntN(3)]
		p := &Pacer{Rand: r.Float64}
		var c []*caller
		for range 1 + r.IntN(20) {
			c = append(c, &caller{Pacer: p})
		}
		const first = 100 // allowed
		n := 0
		answer := func(*caller, time.Duration) (int, http.Header) {
			if n++; n <= first {
				return 200, http.Header{}
			}
			return status, http.Header{}
		}
		closed := time.Duration(math.Exp(r.Float64()*12) * float64(time.Second))
		run(c, 10*time.Millisecond, 0, closed, answer, nil)
		most := len(c) + int(math.Log(6000)/math.Log(askGrowth)) + 2 + int(1.1*closed.Seconds()/longestAsk.Seconds())
		if n-first > most {
			t.Errorf("seed %d: %d callers asked %d times in %v; want at most %d", seed, len(c), n-first, closed, most)
		}
	}
}

// Law 5: clients that do not know each other do not become less equal, also from one to ten, where the slower
// one gets an answer a second.
func TestClientsBecomeEqual(t *testing.T) {
	for _, l := range []limited{
		{units: 600, window: time.Minute, form: "told"},
		{units: 600, window: time.Minute, burst: 100, form: "told"},
		{units: 600, window: time.Minute, form: "after"},
		{units: 600, window: time.Minute, burst: 100, form: "after"},
		{units: 600, window: time.Minute, form: "none"},
	} {
		const seeds = 4
		before, after := 0.0, 0.0
		for seed := range uint64(seeds) {
			l := l
			r := rand.New(rand.NewPCG(seed, 8))
			c := newCallers(2, r)
			run(c, 50*time.Millisecond, 0, 5*time.Minute, l.answer, nil)
			for i, c := range c {
				for _, known := range c.limits {
					if known.pace > 0 {
						known.pace = []float64{1, 9}[i]
						known.base, known.age = known.pace, 0
					}
					known.used = known.answers * []float64{10, 1.1}[i]
				}
			}
			ratio := func(from, until time.Duration) float64 {
				l.count = map[*caller]int{}
				run(c, 50*time.Millisecond, from, until, l.answer, nil)
				a, b := float64(l.count[c[0]]), float64(l.count[c[1]])
				return max(a, b) / max(min(a, b), 1)
			}
			before += ratio(5*time.Minute, 10*time.Minute) / seeds
			ratio(10*time.Minute, 65*time.Minute)
			after += ratio(65*time.Minute, 70*time.Minute) / seeds
		}
		if after > before {
			t.Errorf("%+v: most/least was %.2f and is %.2f", l, before, after)
		}
	}
}

// Law 6: each of several limits under one key is used, whatever the others do.
func TestLimitsApart(t *testing.T) {
	for _, beside := range []struct {
		resource string
		units    float64
	}{{"search", 30}, {"code_search", 10}} {
		r := rand.New(rand.NewPCG(1, 9))
		p := &Pacer{Rand: r.Float64}
		core := &caller{Pacer: p, route: "GET repos"}
		search := &caller{Pacer: p, route: "GET search"}
		limits := map[string]*limited{
			"GET repos":  {units: 5000, window: time.Hour, form: "told"},
			"GET search": {units: beside.units, window: time.Minute, form: "told"},
		}
		resources := map[string]string{"GET repos": "core", "GET search": beside.resource}
		run([]*caller{core, search}, 100*time.Millisecond, 0, 4*time.Hour, func(c *caller, at time.Duration) (int, http.Header) {
			status, h := limits[c.route].answer(c, at)
			h.Set("X-RateLimit-Resource", resources[c.route])
			for _, field := range []string{"Limit", "Remaining", "Reset"} {
				h.Set("X-RateLimit-"+field, h.Get("RateLimit-"+field))
				h.Del("RateLimit-" + field)
			}
			return status, h
		}, nil)
		for _, c := range []*caller{core, search} {
			l := limits[c.route]
			if most := 4 * l.units * float64(time.Hour/l.window); float64(l.count[c]) < 0.95*most {
				t.Errorf("%s beside %s: served %d of %.0f", c.route, beside.resource, l.count[c], most)
			}
		}
	}
}

// What a cache has kept, with an Age or an old Date, is not obeyed; a clock that is set back is.
func TestFromACache(t *testing.T) {
	for _, aged := range []bool{true, false} {
		r := rand.New(rand.NewPCG(1, 10))
		c := newCallers(1, r)
		served := 0
		run(c, 10*time.Millisecond, 0, 5*time.Minute, func(_ *caller, at time.Duration) (int, http.Header) {
			served++
			h := http.Header{"Date": {epoch.Add(at).UTC().Format(http.TimeFormat)}}
			if r.IntN(5) == 0 {
				h = http.Header{"Ratelimit": {"limit=10, remaining=0, reset=600"}, "Date": {epoch.Add(at - time.Hour).UTC().Format(http.TimeFormat)}}
				if aged {
					h.Set("Age", "3600")
				}
			}
			return 200, h
		}, nil)
		if served < 29_000 {
			t.Errorf("Age %v: served %d in five minutes; want 30000", aged, served)
		}
	}

	p := &Pacer{}
	for i, ahead := range []time.Duration{time.Second, -time.Hour, -time.Hour, -time.Hour, -time.Hour, -time.Hour, -time.Hour, -time.Hour, -time.Hour, -time.Hour} {
		if old := p.old(epoch, retryafter.Answer{Date: epoch.Add(ahead)}); old != (i > 0 && i < 9) {
			t.Errorf("answer %d: old is %v", i, old)
		}
	}
}
