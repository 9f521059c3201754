package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// A draw is a world of chance: a partner and its clients, which call without pause. Units, windows, clients,
// latency and the length of outages are log-uniform. Every other property is uniform, and none depends on another.
type draw struct {
	limits  []drawn // one, or two at once, of which the second has the longer window
	clients int
	latency time.Duration // of a request, and up to half more

	form   string // of the fields: draft6, draft11, one of xForms, or none
	after  bool   // denials have a Retry-After
	second bool   // where fields tell one of two limits, it is the second
	exact  bool   // times are told in milliseconds, and not rounded up to seconds

	block   time.Duration // after a denial, in which all requests are denied; 0 for none
	dearest int64         // a request costs 1 to so many units

	every, out time.Duration // the partner answers 503 for out of every; 0 for never
	outAfter   bool          // with a Retry-After

	cached bool          // a tenth of the requests is answered by a cache
	aged   bool          // which says so with an Age; otherwise only Date is old
	skew   time.Duration // of the partner's clock
}

// drawn is a limit.
type drawn struct {
	kind   string // bucket, fixed or sliding
	units  int64  // in a window
	burst  int64  // of a bucket; otherwise as units
	window time.Duration
}

// xForms are the common forms of X-RateLimit.
var xForms = []string{"seconds", "unix", "iso", "date", "discord", "twitter", "openai", "reddit", "shopify", "zendesk"}

const (
	minWindow, maxWindow   = time.Second, 24 * time.Hour
	maxUnits, maxClients   = 10_000, 30
	minLatency, maxLatency = 5 * time.Millisecond, 2 * time.Second
	minOutage, maxOutage   = 5 * time.Second, 5 * time.Minute
	maxSkew                = 10 * time.Minute
	maxCost                = 5
	cacheTakes             = 0.1             // of the requests, where answers are cached
	cacheKeeps             = 5 * time.Minute // an answer
	maxAnswers             = 200_000         // of a run; limits that would give more than half of them are scaled
)

// logUniform returns a number from low to high, log-uniform.
func logUniform(r *rand.Rand, low, high float64) float64 {
	return low * math.Exp(r.Float64()*math.Log(high/low))
}

func logDuration(r *rand.Rand, low, high time.Duration) time.Duration {
	return time.Duration(logUniform(r, float64(low), float64(high)))
}

func coin(r *rand.Rand) bool { return r.IntN(2) == 0 }

func oneOf[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// newDraw draws a world.
func newDraw(r *rand.Rand) *draw {
	d := &draw{
		clients: int(math.Round(logUniform(r, 1, maxClients))), latency: logDuration(r, minLatency, maxLatency),
		second: coin(r), exact: coin(r), dearest: 1, outAfter: coin(r), cached: coin(r), aged: coin(r),
	}

	first := newDrawn(r, 1, maxUnits, minWindow)
	d.limits = []drawn{first}
	if r.IntN(4) == 0 {
		d.limits = append(d.limits, newDrawn(r, float64(first.units), maxUnits, first.window))
	}

	d.form, d.after = "none", coin(r)
	switch r.IntN(5) {
	case 0:
		d.form = "draft6"
	case 1:
		d.form = "draft11"
	case 2:
		d.form = oneOf(r, xForms...)
	case 3:
		d.after = true
	case 4:
		d.after = false
	}

	if coin(r) {
		d.block = time.Duration(r.Float64() * float64(first.window))
	}
	if coin(r) {
		d.dearest = 2 + r.Int64N(maxCost-1)
	}
	if coin(r) {
		d.out = logDuration(r, minOutage, maxOutage)
		d.every = time.Duration(float64(d.out) * (5 + 45*r.Float64()))
	}
	if coin(r) {
		d.skew = time.Duration((2*r.Float64() - 1) * float64(maxSkew))
	}
	d.scale()
	return d
}

// newDrawn draws a limit. A kind of both at once is drawn by newDraw, so here are the three others.
func newDrawn(r *rand.Rand, least, most float64, shortest time.Duration) drawn {
	l := drawn{
		kind: oneOf(r, "bucket", "fixed", "sliding"), units: int64(math.Round(logUniform(r, least, most))),
		window: logDuration(r, shortest, maxWindow).Round(100 * time.Millisecond),
	}
	l.burst = l.units
	if l.kind == "bucket" {
		l.burst = int64(math.Round(logUniform(r, 1, float64(l.units))))
	}
	return l
}

// scale lowers limits that would give more than half of maxAnswers in a run.
func (d *draw) scale() {
	for i := range d.limits {
		l := &d.limits[i]
		if most := maxAnswers / 2 * l.window.Seconds() / d.length().Seconds(); float64(l.units) > most {
			l.units = max(int64(most), 1)
			l.burst = min(l.burst, l.units)
		}
	}
}

// cost is the mean cost of a request to a limit, which charges at most its burst.
func (d *draw) cost(l drawn) float64 {
	sum := int64(0)
	for c := range d.dearest {
		sum += min(1+c, l.burst)
	}
	return float64(sum) / float64(d.dearest)
}

// given is what the limits give all clients, in requests a second.
func (d *draw) given() float64 {
	rate := math.Inf(1)
	for _, l := range d.limits {
		rate = min(rate, float64(l.units)/l.window.Seconds()/d.cost(l))
	}
	return rate
}

// possible is what the limits, the latency and the outages leave for the clients, in requests a second.
func (d *draw) possible() float64 {
	rate := float64(d.clients) / (1.25 * d.latency.Seconds())
	if d.cached {
		rate *= 1 - cacheTakes
	}
	rate = min(rate, d.given())
	if d.out > 0 {
		rate *= 1 - d.out.Seconds()/d.every.Seconds()
	}
	return rate
}

// longest and shortest are windows.
func (d *draw) longest() time.Duration  { return d.limits[len(d.limits)-1].window }
func (d *draw) shortest() time.Duration { return d.limits[0].window }

// A run has four parts of whole windows: settled is the end of the first, in which the clients find their
// rates; the second is late. Then the limit gives a tenth until restored, and the clients have until length
// to recover.
func (d *draw) settled() time.Duration { return d.whole(max(5*d.longest(), 10*time.Minute)) }

func (d *draw) late() time.Duration {
	thirty := time.Duration(30 * float64(d.clients) / d.given() * float64(time.Second))
	return d.settled() + d.whole(max(3*d.longest(), 10*time.Minute, thirty))
}

func (d *draw) restored() time.Duration {
	return d.late() + d.whole(max(2*d.longest(), 5*time.Minute))
}

func (d *draw) length() time.Duration { return d.restored() + 2*d.allowance() }

// allowance is the time in which a client is to recover.
func (d *draw) allowance() time.Duration { return d.whole(max(10*d.longest(), 10*time.Minute)) }

func (d *draw) whole(t time.Duration) time.Duration {
	return (t + d.longest() - 1) / d.longest() * d.longest()
}

// factor is what the limit gives, of its units.
func (d *draw) factor(at time.Duration) float64 {
	if at >= d.late() && at < d.restored() {
		return 0.1
	}
	return 1
}

// main reports whether the world belongs to the main table: each client has at least 10 units a window, and
// the burst is at least 3.
func (d *draw) main() bool {
	for _, l := range d.limits {
		if l.units < int64(10*d.clients) || l.burst < 3 {
			return false
		}
	}
	return true
}

// String describes the world.
func (d *draw) String() string {
	var s []string
	for _, l := range d.limits {
		text := fmt.Sprintf("%d/%v %s", l.units, l.window.Round(100*time.Millisecond), l.kind)
		if l.kind == "bucket" {
			text = fmt.Sprintf("%d/%v burst %d", l.units, l.window.Round(100*time.Millisecond), l.burst)
		}
		s = append(s, text)
	}
	s = append(s, d.form)

	add := func(is bool, format string, args ...any) {
		if is {
			s = append(s, fmt.Sprintf(format, args...))
		}
	}
	add(d.after, "after")
	add(d.second && len(d.limits) == 2 && d.form != "none" && d.form != "draft11", "tells second")
	add(d.exact, "exact")
	s = append(s, fmt.Sprintf("%d clients, %v", d.clients, d.latency.Round(time.Millisecond)))
	add(d.block > 0, "block %v", d.block.Round(100*time.Millisecond))
	add(d.dearest > 1, "cost %d", d.dearest)
	add(d.out > 0, "out %v of %v", d.out.Round(time.Second), d.every.Round(time.Second))
	add(d.out > 0 && d.outAfter, "after")
	add(d.cached, "cached")
	add(d.cached && d.aged, "aged")
	add(d.skew != 0, "skew %v", d.skew.Round(time.Second))
	return strings.Join(s, ", ")
}
