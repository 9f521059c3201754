// Package before is package pacer as it was before it was begun again, for the simulation to compare
// with. It paces the requests of one client by the RateLimit fields of the responses.
//
// Once the limit is within reach, requests leave at the rate
//
//	share · rate · exp((remaining - reserve) / (exponentScale·reserve))
//
// rate is that of the server's limit, and the reserve is what one client leaves in the bucket. The
// exponential, backoffFactor, acts at once: it slows all clients while remaining falls, and speeds them
// up while it rises. The share changes slowly. It follows a common share, which is a function of
// remaining alone:
//
//	(remaining / reserve) ^ steepness, at least 1/maxClients and at most 1
//
// All clients see the same remaining, so all shares come to the same value, whatever they were before.
// Remaining settles where those shares add up to the whole rate: at the reserve with one client, lower
// with more. So remaining tells each client how many others there are.
//
// A denial moves the share toward that of an empty bucket. If the server does not tell its rate, or its
// bucket is too small for a reserve, there is no common share. Then the share is learned by additive
// increase and multiplicative decrease.
//
// A fixed window has no bucket that refills. There remaining is replaced by what a bucket would have:
// the reserve, less the units that were used more than an even use of the window.
//
// A denial that shows much remaining, or nothing, is by a limit that no field describes. It lowers a
// second rate, which denials and clocks alone determine; the slower of both counts. That rate alone
// counts where remaining says only when the limit is used up: in sliding windows, and in small ones.
//
// pacer.go has the queue of requests, share.go the rate, aimd.go the share without a common one,
// limit.go what the server says of its limit, window.go recognizes fixed windows, and blind.go has the
// second rate.
package before

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/internal/retryafter"
)

// Pacer paces the requests on one limit of a server. The zero value is ready to use. It is safe
// for concurrent use, and no method sleeps.
//
// A request calls Next, sleeps until Again returns 0, and calls Done:
//
//	d, ok := pacer.Next(time.Now(), patience)
//	if !ok {
//		return // it would sleep for longer
//	}
//	for ; d > 0; d = pacer.Again(time.Now()) {
//		time.Sleep(d)
//	}
//	resp, err := client.Do(req)
//	pacer.Done(time.Now(), resp.StatusCode, resp.Header) // 0 and nil if err != nil
//
// A request that does not go on after Next calls Cancel instead of Done.
type Pacer struct {
	// Rand returns numbers in [0, 1) for jitter; nil means rand.Float64. Calls of one Pacer
	// never overlap. Set it before first use.
	Rand func() float64

	// MaxInterval bounds the interval between requests to a server that sends no fields; 0 means
	// 10 minutes. Set it before first use.
	MaxInterval time.Duration

	mu sync.Mutex

	// The share.
	pacing       bool      // a response has shown that the limit is within reach
	share        float64   // of the rate, at remaining == reserve
	lastResponse time.Time // zero before the first
	again        bool      // the last response was a denial that counted
	blind        blind     // beside the share

	// What the server says of its limit.
	policy    string  // which limit the following fields describe
	rate      float64 // units a second; 0 if unknown
	capacity  float64 // units; 0 if unknown
	known     bool    // remaining is known
	remaining float64 // units
	window    window
	left      float64 // units; remaining, or in a fixed window what would remain in a bucket
	highest   float64 // the most that remained so far
	fallen    float64 // units that the clients used while the last responses came
	responded float64 // number of those responses
	unchanged int     // responses in a row with the same remaining
	oldShare  float64 // the share at the first of them
	fullAt    float64 // units at which the bucket seems full; 0 if unknown

	// The queue.
	lastSlot  time.Time // the latest slot given to a request
	lastSent  time.Time
	holdUntil time.Time // by the server's Retry-After
	inFlight  int       // requests between Next and Done or Cancel
	sent      int       // of these, requests that do not sleep
	sameWave  int       // responses still to come whose denials count with the denial before
}

const (
	// maxHold bounds Retry-After: after a day a request is sent whatever the server said.
	maxHold = 24 * time.Hour
	// jitter is the part of an interval that is added at random, so that clients do not
	// synchronize. Without it, most/least of 30 clients of 10 a second without fields is 17 and not 11.
	jitter = 0.1
	// smallMargin is added instead where there is no reserve: a request that arrives early is denied. Without
	// it, one client of a bucket of one unit is denied 7 %.
	smallMargin = 0.025
	// maxQueue, in intervals for each request in flight, bounds the length of the queue. No world needs it:
	// requests that are cancelled do.
	maxQueue = 4
	// maxQueueLength keeps that bound, in nanoseconds, within a Duration.
	maxQueueLength = 1000 * float64(maxHold)
)

// interval returns the time from one request to the next: the inverse of the rate in the package
// comment.
func (p *Pacer) interval() time.Duration {
	interval := p.blind.interval(cmp.Or(p.MaxInterval, maxBlindInterval))
	if !p.pacing {
		return interval
	}
	rate := p.share * cmp.Or(p.rate, assumedRate)
	return max(interval, time.Duration(min(1/(rate*p.backoffFactor()), p.maxInterval())*float64(time.Second)))
}

// Next gives a request its slot and returns how long to sleep until then. If the sleep would be
// longer than most, ok is false, and the request has no slot and is over.
func (p *Pacer) Next(now time.Time, most time.Duration) (sleep time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	at := latest(now, p.holdUntil)
	if interval := p.interval(); interval > 0 {
		// A longer queue dates from a slower rate, or from requests that were cancelled. It is
		// cut to this bound and not to what is needed, or new requests would overtake old ones.
		longest := min(float64(maxQueue*p.inFlight)*float64(interval), maxQueueLength)
		if last := now.Add(time.Duration(longest)); p.lastSlot.After(last) && last.After(p.holdUntil) {
			p.lastSlot = last
		}

		switch {
		case !p.pacing: // as often shorter: the mean is what the limit gives
			interval += time.Duration(float64(interval) * jitter * (p.random() - 0.5))
		case p.reserve() == 0:
			interval += time.Duration(float64(interval) * smallMargin)
		default:
			interval += time.Duration(float64(interval) * jitter * p.random())
		}

		at = latest(at, p.lastSlot.Add(interval))
	}

	if sleep = at.Sub(now); sleep > most {
		return sleep, false
	}

	p.lastSlot = latest(p.lastSlot, at)
	if p.inFlight == 0 && !p.lastResponse.IsZero() {
		p.blind.idle(now.Sub(p.lastResponse))
	}
	p.inFlight++
	if sleep == 0 {
		p.send(now)
	}
	return sleep, true
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (p *Pacer) random() float64 {
	if p.Rand != nil {
		return p.Rand()
	}
	return rand.Float64()
}

func (p *Pacer) send(now time.Time) {
	p.lastSent = now
	p.sent++
}

// Again returns how much longer a request sleeps that has slept, since responses may have come in
// the meantime. If it returns 0, the request is to be sent.
func (p *Pacer) Again(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holdUntil.After(now) {
		return p.holdUntil.Sub(now)
	}

	if due := p.lastSent.Add(p.interval()); due.After(now) {
		return due.Sub(now)
	}

	p.send(now)
	return 0
}

// Cancel ends a request that sleeps and is not sent.
func (p *Pacer) Cancel() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight = max(p.inFlight-1, 0)
}

// Done reports the status and header of the response to a request that was sent, or 0 and nil if
// there was none.
func (p *Pacer) Done(now time.Time, status int, header http.Header) {
	p.Answered(now, status, retryafter.Read(now, status, header))
}

// Answered is Done for a header that has been read.
func (p *Pacer) Answered(now time.Time, status int, a retryafter.Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.inFlight = max(p.inFlight-1, 0)
	p.sent = max(p.sent-1, 0)
	sameWave := p.sameWave > 0
	p.sameWave = max(p.sameWave-1, 0)
	if status == 0 {
		return
	}

	elapsed := 0.0
	if !p.lastResponse.IsZero() {
		elapsed = max(now.Sub(p.lastResponse).Seconds(), 0)
	}
	p.lastResponse = now
	p.hold(now, a.Wait)
	p.learn(now, elapsed, a)

	if a.Denied {
		p.denied(now, sameWave)
		return
	}

	p.blind.answered(now)
	if a.Remaining == 0 && p.few() {
		p.blind.denied(now, 0)
	}
	p.allowed(elapsed)
}

// hold lets no request go for so long.
func (p *Pacer) hold(now time.Time, wait time.Duration) {
	if wait > 0 {
		p.holdUntil = latest(p.holdUntil, now.Add(min(wait, maxHold)))
	}
}
