// Package pacer paces the requests of one client by what the responses say of the server's limits. It is
// the algorithm of httpclient.Adaptive, without network and clock. This comment is the whole of it.
//
// A response names limits: the limits of its fields, or else those that its route had before, or else the one
// without a name, which routes without an answer have, too. The next request to the same route waits for each
// of them, in order of arrival, until the wait that the server has told is over and an interval has passed since
// the last request. After a told wait it is a part of an interval, since all clients were told the same time.
// The interval comes from the slower of two paces.
//
// The told pace comes from the fields. went is how many units all clients used for each answer that this one got,
// so where clients are equal it is their number; each divides by went to the power of equal. A power of 1 would
// keep the clients as they are. With less, a client that has little takes more, until all have the same.
//
//	fixed window     (remaining + 1) / went^equal / time from the last request to the reset, and one at the reset
//	bucket           rate · exp((remaining - reserve) / reserve) / went^equal
//
// A bucket is a limit whose resets are those of a rate: (capacity - remaining) / rate. It is used freely until few
// units remain; then its reserve keeps some, so that remaining can tell the clients what to do. Where the next reset
// comes before the next window could end, the window slides. It is paced as a bucket with its mean rate, but never
// used freely: what leaves at once comes back at once. Of a fixed window, what remained when a request was denied is
// not used again: a request may cost more.
//
// The learned pace comes from denials that the fields do not explain. From a denial to the next allowed request
// the limit is closed: one request at a time asks, at growing intervals if nothing is told, and never faster than
// the pace. When it opens, the pace becomes a cut less; or what was allowed since the last time, divided by all of
// that time, if it was closed for longer than open, but at least half of the pace before. Then it grows, by what
// is the same for all clients that share the closed times:
//
//	pace = pace at opening + (2^age - 1) · (1 / closed time, or a cut of the pace if that is less)
//
// age grows by 1 in the closed time, 30 seconds, or the time of few/2 requests, whichever is longest. From the age
// steady on the pace doubles with each 1 more, so a limit that was raised is found, however large it is. A client
// that has been allowed fewer than a few requests when it is first denied knows no pace: from 2.1 in the closed time
// its guess doubles until the next denial.
//
// A failure is no denial: a 503, or no response. It holds all requests back as told, or one at a time asks, and
// changes no pace. A response from a cache says nothing.
//
// pacer.go has the queue and the names, limit.go the told pace, denied.go the learned one. outbound/simulate
// measures it: run -random with several seeds before and after a change here.
package pacer

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/internal/retryafter"
)

// Pacer paces the requests under one key. The zero value is ready to use. It is safe for concurrent use, and no
// method sleeps.
//
// A request calls Next, sleeps until Again returns 0, and reports to Answered or Failed:
//
//	id, d, ok := pacer.Next(time.Now(), route, patience)
//	if !ok {
//		return // it would sleep for longer
//	}
//	for ; d > 0; d = pacer.Again(time.Now(), route, id) {
//		time.Sleep(d)
//	}
//
// A request that does not go on after Next calls Cancel.
type Pacer struct {
	// Rand returns numbers in [0, 1); nil means rand.Float64. Set it before first use.
	Rand func() float64

	// Longest bounds the intervals between requests; 0 means a day. Set it before first use.
	Longest time.Duration

	mu     sync.Mutex
	limits map[name]*limit
	routes map[string][]*limit // that the last answer named
	last   int64               // number of a request
	flying int                 // requests that were sent and brought nothing yet

	hold     time.Time     // of all requests, as told
	failures asking        // and by failures
	sent     time.Time     // the last request
	ahead    time.Duration // of the server's clock; 0 if unknown
	stale    int           // answers in a row with an old date
}

// name tells the limits of a server apart.
type name struct{ resource, policy string }

// The constants of the algorithm.
const (
	maxHold    = 24 * time.Hour          // law 1: a told wait is believed for so long
	resetError = 1200 * time.Millisecond // of a reset that is rounded up to seconds, with some latency
	few        = 8.0                     // units that remain, or answers that say something
	maxReserve = 32.0                    // units: law 5, enough for thirty clients; with more, the clients of the story sleep longer at its begin
	equal      = 0.7                     // law 5; with 1 no client would take over from another, with 0.5 thirty clients overrun a bucket
	cut        = 0.1                     // law 3: the part of a pace that a denial takes; half of it is left unused on average
	steady     = 3.0                     // law 3: closed times after which the whole pace doubles in each
	doublesIn  = 30 * time.Second        // law 3: the shortest time for that
	firstAsk   = 100 * time.Millisecond  // law 4
	askGrowth  = 1.5                     // law 4: a third of a closed time may pass unseen
	longestAsk = 10 * time.Minute        // law 4
	jitter     = 0.1                     // of an interval, so that clients do not meet again and again
)

// These bound the memory: beyond maxLimits, limits and routes are learned again, and names are cut.
const (
	maxLimits = 64
	maxName   = 128
)

// Next returns the number of a request and how long it sleeps before it may be sent. If that is longer than
// most, ok is false, and the request is over.
func (p *Pacer) Next(now time.Time, route string, most time.Duration) (id int64, sleep time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.last++
	if sleep = p.sleep(now, route, p.last); sleep > most {
		return 0, sleep, false
	}
	if sleep == 0 {
		p.send(now, route)
		return p.last, 0, true
	}
	for _, l := range p.of(route) {
		l.queue = append(l.queue, p.last)
	}
	return p.last, sleep, true
}

// Again returns how much longer a request sleeps that has slept, since responses may have come in
// the meantime. If it returns 0, the request is to be sent.
func (p *Pacer) Again(now time.Time, route string, id int64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()

	sleep := p.sleep(now, route, id)
	if sleep == 0 {
		p.leave(id)
		p.send(now, route)
	}
	return sleep
}

// Cancel ends a request that sleeps and is not sent.
func (p *Pacer) Cancel(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(id)
}

func (p *Pacer) sleep(now time.Time, route string, id int64) time.Duration {
	at := latest(now, p.hold)
	if p.failures.n > 0 {
		at = latest(at, latest(p.sent, p.failures.at).Add(p.failures.interval(0, 0)))
	}
	for _, l := range p.of(route) {
		at = latest(at, l.due(now, id, p.Longest))
	}
	return at.Sub(now)
}

func (p *Pacer) leave(id int64) {
	for _, l := range p.limits {
		if i, waits := slices.BinarySearch(l.queue, id); waits {
			l.queue = slices.Delete(l.queue, i, i+1)
		}
	}
}

func (p *Pacer) send(now time.Time, route string) {
	random := rand.Float64
	if p.Rand != nil {
		random = p.Rand
	}
	p.sent, p.flying = now, p.flying+1
	for _, l := range p.of(route) {
		l.sent, l.jitter, l.spread = now, 1+jitter*(random()-0.5), random()
	}
}

// Failed reports that a request brought no response, or a 503, with the wait that it tells.
func (p *Pacer) Failed(now time.Time, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flying--
	p.hold = latest(p.hold, now.Add(min(wait, maxHold)))
	if wait == 0 {
		p.failures.no(now, p.sent)
	}
}

// Over reports that a request is over and says nothing. It does nothing if p is nil.
func (p *Pacer) Over() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flying--
}

// Answered reports what a response says.
func (p *Pacer) Answered(now time.Time, route string, a retryafter.Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.failures = asking{}
	p.flying--
	if p.old(now, a) && !a.Denied {
		return
	}

	limits := p.told(now, route, a)
	if len(p.routes) >= maxLimits || p.routes == nil {
		p.routes = map[string][]*limit{}
	}
	p.routes[clip(route)] = limits
	if !a.Denied {
		for _, l := range limits {
			l.allowed(now)
		}
		return
	}

	// What is used up has denied. Where nothing is, a limit did that no field describes: it is learned
	// beside the first.
	by := slices.DeleteFunc(slices.Clone(limits), func(l *limit) bool { return !l.known || l.remaining >= 1 })
	if len(by) == 0 {
		by = limits[:1]
	}
	for _, l := range by {
		l.denied(now, min(a.Wait, maxHold))
	}
}

// old reports whether an answer comes from a cache: it says so, or its date is older than that of an answer before.
// After a few in a row the clock was set back.
func (p *Pacer) old(now time.Time, a retryafter.Answer) bool {
	if a.Date.IsZero() {
		return a.Old
	}

	ahead := a.Date.Sub(now)
	if p.stale++; ahead > p.ahead-few*time.Second || p.ahead == 0 || p.stale > few {
		p.stale, p.ahead = 0, ahead
	}
	return a.Old || p.stale > 0
}

// told returns the limits that an answer names, after they have taken in what it tells.
func (p *Pacer) told(now time.Time, route string, a retryafter.Answer) []*limit {
	if known := p.of(route); a.Remaining < 0 && known != nil {
		return known
	} else if a.Remaining < 0 {
		return []*limit{p.limit(name{})}
	}

	var limits []*limit
	for i, t := range a.Limits() {
		if i == 0 || t.Policy != "" {
			l := p.limit(name{a.Resource, t.Policy})
			l.tell(now, a.Denied, p.flying, t)
			limits = append(limits, l)
		}
	}
	return limits
}

// of returns the limits of a route: an unknown one has that without a name, if there is one.
func (p *Pacer) of(route string) []*limit {
	known := p.routes[route[:min(len(route), maxName)]]
	if l := p.limits[name{}]; known == nil && l != nil {
		known = []*limit{l}
	}
	return known
}

// clip bounds what is kept of a name, which is a part of a long URL or field.
func clip(s string) string { return strings.Clone(s[:min(len(s), maxName)]) }

func (p *Pacer) limit(n name) *limit {
	n = name{clip(n.resource), clip(n.policy)}
	l := p.limits[n]
	if l == nil {
		if p.limits == nil || len(p.limits) >= maxLimits {
			p.limits, p.routes = map[name]*limit{}, map[string][]*limit{}
		}
		l = &limit{}
		p.limits[n] = l
	}
	return l
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// asking is a time in which one request after the other asks whether the server allows requests again.
type asking struct {
	n  int       // answers no; those to requests that were on their way together count once
	at time.Time // the last of them
}

func (q *asking) no(now, sent time.Time) {
	if q.n == 0 || sent.After(q.at) {
		q.n, q.at = q.n+1, now
	}
}

// interval is the time until the next question.
func (q *asking) interval(first, most time.Duration) time.Duration {
	return time.Duration(min(float64(max(first, firstAsk))*math.Pow(askGrowth, float64(q.n-1)), float64(max(most, longestAsk))))
}
