// Package pacer paces the requests of one client by the RateLimit fields of the responses. It is
// the algorithm of httpclient.Adaptive, without network and clock.
//
// Once the limit is within reach, requests leave at the rate
//
//	share · rate · exp((remaining - reserve) / (exponentScale·reserve))
//
// rate is that of the server's limit. The exponential, backoffFactor, acts at once: it slows all
// clients while remaining is below the reserve, and speeds them up above it. share is learned by
// additive increase and multiplicative decrease (AIMD; Chiu and Jain 1989), which makes the
// shares of several clients equal.
//
// A fixed window has no bucket that refills. There remaining is replaced by what a bucket would have:
// the reserve, less the units that were used more than an even use of the window.
//
// A denial that shows much remaining, or nothing, is by a limit that no field describes. It lowers a
// second rate, which denials alone determine; the slower of both counts.
//
// pacer.go holds the algorithm, its constants and the queue of requests; window.go recognizes fixed
// windows; blind.go has the second rate. examples/simulate compares the algorithm with others in many
// worlds: run it before and after a change here.
package pacer

import (
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/retryafter"
)

// Pacer paces the requests on one limit of a server. The zero value is ready to use. It is safe
// for concurrent use, and no method sleeps.
//
// A request calls Next, sleeps until Again returns 0, and calls Done:
//
//	for d := pacer.Next(time.Now()); d > 0; d = pacer.Again(time.Now()) {
//		time.Sleep(d)
//	}
//	resp, err := client.Do(req)
//	pacer.Done(time.Now(), resp.StatusCode, resp.Header) // 0 and nil if err != nil
//
// A request that does not go on after Next calls Cancel instead of Done.
type Pacer struct {
	// Start is how long a request sleeps that comes before the first response; 0 means not at
	// all. Set it before first use.
	Start time.Duration

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
	nextDecrease time.Time // denials until then count with the denial before
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
	rising    bool    // left has grown since the response before
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

	// The rate of allowed requests.
	responses   int       // since windowStart
	windowStart time.Time // zero before the first response
	windowRate  float64   // in the window before, a second
}

// interval returns the time from one request to the next: the inverse of the rate in the package
// comment.
func (p *Pacer) interval() time.Duration {
	interval := p.blind.interval()
	if !p.pacing {
		return interval
	}
	rate := p.share * assumedRate
	if p.rate > 0 {
		rate = p.share * p.rate
	}
	return max(interval, time.Duration(min(1/(rate*p.backoffFactor()), p.maxInterval())*float64(time.Second)))
}

// maxInterval returns the longest interval of the algorithm in seconds, so that a client with a very
// small share still notices when there is room.
func (p *Pacer) maxInterval() float64 {
	if p.rate == 0 {
		return maxInterval.Seconds()
	}
	return min(max(maxInterval.Seconds(), maxClients/p.rate), maxHold.Seconds())
}

// backoffFactor returns the factor by which remaining changes the rate: 1 at the reserve.
func (p *Pacer) backoffFactor() float64 {
	reserve := p.reserve()
	if reserve == 0 || !p.known {
		return 1
	}
	factor := math.Exp((p.left - reserve) / (exponentScale * reserve))
	if p.window.sliding {
		factor = min(factor, maxSlidingFactor)
	}
	return factor
}

// clients returns how many clients seem to share the limit: the units used for each own response.
func (p *Pacer) clients() float64 {
	if p.responded < minResponded {
		return 1
	}
	return max(p.fallen/p.responded, 1)
}

// reserve returns how many units the clients leave in the bucket; 0 in a small bucket.
func (p *Pacer) reserve() float64 {
	reserve := unknownReserve
	if p.capacity > 0 {
		reserve = min(maxReserve, p.capacity*reserveFraction)
		if p.window.sliding {
			reserve = min(maxReserve, max(p.capacity*slidingReserveFraction, 1))
		}
	}
	if p.fullAt > 0 { // half of it: other clients may not have found out
		reserve = min(reserve, p.fullAt/2)
	}
	if reserve < 1 {
		return 0
	}
	return reserve
}

// allowed updates the share after a response that is no denial, elapsed seconds after the
// response before. Above the reserve it increases the share, below it decreases it.
func (p *Pacer) allowed(elapsed float64) {
	p.blind.allowed()
	p.again = false
	reserve := p.reserve()
	if !p.pacing {
		reserve = min(reserve, max(startReserve, startPerClient*p.clients()))
		if p.known && p.remaining-float64(p.inFlight) < max(reserve, 1) {
			p.startPacing()
		}
		return
	}
	excess := initialShare // in a bucket too small for a reserve: a slow increase
	if reserve > 0 {
		excess = min((p.left-reserve)/reserve, 1)
	}
	switch {
	case excess >= 0:
		boost := min(float64(1+p.unchanged), maxBoost)
		if p.rate > 0 {
			elapsed *= min(p.rate, 1)
		}
		if p.window.sliding {
			elapsed *= slidingIncrease
		}
		p.setShare(p.share + min(increase*excess*elapsed*boost, maxIncrease)*math.Sqrt(p.share))
	case !p.rising:
		p.setShare(p.share * (1 + decrease*excess))
	}
}

// denied lowers the rate after a denial. Denials of requests that were on their way together count
// once, and so do those of requests that had their slot.
func (p *Pacer) denied(now time.Time, sameWave bool) {
	p.fullAt = 0
	switch {
	case !p.known || p.remaining > max(p.reserve(), 1):
		// No field describes the limit that denied the request.
		if sameWave {
			return
		}
		p.sameWave = p.sent
		longest := p.MaxInterval
		if longest == 0 {
			longest = maxBlindInterval
		}
		p.blind.denied(p.windowRate, longest)
		return
	case !p.pacing:
		p.startPacing()
	case now.After(p.nextDecrease):
		switch {
		case !p.again:
			p.setShare(p.share * (1 - decreaseOnDenial))
		case p.reserve() == 0: // nothing else tells that there are many clients
			p.setShare(p.share * smallDecreaseAgain)
		default:
			p.setShare(p.share * decreaseAgain)
		}
	default:
		return
	}
	p.again = true
	p.nextDecrease = now
	if p.lastSlot.After(now) {
		p.nextDecrease = p.lastSlot
	}
}

// startPacing sets the share so that the first rate is initialShare of the server's.
func (p *Pacer) startPacing() {
	p.pacing = true
	share := initialShare
	if p.responded >= minResponded {
		share = 1 / p.clients()
	}
	p.setShare(share / min(p.backoffFactor(), 1))
}

// setShare keeps the share within its bounds.
func (p *Pacer) setShare(share float64) {
	rate, upper := assumedRate, maxShare
	if p.rate > 0 {
		rate, upper = p.rate, 1
	}
	lower := min(1/(rate*p.maxInterval()), initialShare)
	p.share = min(max(share, lower), upper)
}

// The constants of the algorithm.
const (
	// maxReserve, in units, is the reserve of a large bucket: about as many requests as a few
	// clients have in flight. None of them knows of the others' requests yet.
	maxReserve     = 32.0
	unknownReserve = 8.0
	// reserveFraction of a small bucket's capacity is its reserve. So much is never used.
	reserveFraction = 0.25
	// slidingReserveFraction is the same in a sliding window, which loses its reserve in each period.
	slidingReserveFraction = 0.03
	// exponentScale, in reserves, is the change of remaining that changes the rate by a factor
	// of e. With less, the rate oscillates, since responses lag by a few requests; with more, the
	// share has to adapt instead, which is slow.
	exponentScale = 1.2
	// startReserve, in units, and startPerClient, in units for each client, is the remaining at
	// which pacing begins, unless the reserve is smaller.
	startReserve, startPerClient = 8.0, 2.0
	// maxSlidingFactor bounds the factor by which remaining raises the rate in a sliding window. A
	// burst there returns one window later.
	maxSlidingFactor = 1.0
	// slidingIncrease is the factor of the increase there, since its effect is seen as late.
	slidingIncrease = 0.03

	// increase is the growth of a share a second, at remaining of twice the reserve or more,
	// times the square root of the share. A client takes over within minutes what another has
	// left unused. The shares must change more slowly than the exponential for both to settle.
	increase = 0.003
	// maxIncrease bounds the growth by one response, however long ago the last one was.
	maxIncrease = 0.1
	// maxBoost bounds the factor by which a share grows faster while remaining does not change.
	maxBoost = 10.0
	// decrease is the part of its share that a client gives up for each response with nothing
	// remaining. 35 of them halve it; a single one matters little.
	decrease = 0.02
	// decreaseOnDenial is the same for a denial, once for all requests in flight.
	decreaseOnDenial = 0.2
	// decreaseAgain is the factor of a denial that follows another: there are many more clients
	// than the share is for.
	decreaseAgain, smallDecreaseAgain = 0.65, 0.5

	// minResponded responses say how many clients there seem to be.
	minResponded = 2
	// initialShare of the rate is the first rate if that is unknown: half, since there may be one
	// other client.
	initialShare = 0.5
	// maxShare bounds the share of an unknown rate.
	maxShare = 1e9
	// assumedRate, in units a second, stands in for an unknown rate.
	assumedRate = 1.0
	// fullAfter is the factor by which the share changes, with remaining unchanged, until the
	// bucket counts as full: if there were room above, remaining would have changed.
	fullAfter = 2.0

	// maxInterval is the longest interval at an unknown rate, and maxClients, in intervals of the
	// limit, the longest at a known one: so many clients may share the limit evenly. It is at most
	// maxHold.
	maxInterval = time.Minute
	maxClients  = 256
	// maxHold bounds Retry-After: after a day a request is sent whatever the server said.
	maxHold = 24 * time.Hour
	// jitter is the part of an interval that is added at random, so that clients do not
	// synchronize.
	jitter = 0.1
	// smallMargin and the part smallJitter of jitter are added instead where there is no reserve:
	// a request that arrives early is denied.
	smallMargin, smallJitter = 0.025, 0.4
	// maxQueue, in intervals for each request in flight, bounds the length of the queue.
	maxQueue = 4
	// answerWindow, in seconds, is the length of the windows in which allowed requests are counted.
	answerWindow = 10
)

// Next gives a request its slot and returns how long to sleep until then.
func (p *Pacer) Next(now time.Time) time.Duration {
	d, _ := p.NextWithin(now, math.MaxInt64)
	return d
}

// NextWithin is Next, unless the sleep would be longer than most. Then ok is false, and the request
// has no slot and is over.
func (p *Pacer) NextWithin(now time.Time, most time.Duration) (sleep time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := now
	if p.lastResponse.IsZero() {
		at = at.Add(p.Start)
	}
	if p.holdUntil.After(at) {
		at = p.holdUntil
	}
	if interval := p.interval(); interval > 0 {
		// A longer queue dates from a slower rate, or from requests that were cancelled. It is
		// cut to this bound and not to what is needed, or new requests would overtake old ones.
		if last := now.Add(time.Duration(maxQueue*p.inFlight) * interval); p.lastSlot.After(last) && last.After(p.holdUntil) {
			p.lastSlot = last
		}
		if part := jitter * p.random(); p.pacing && p.reserve() == 0 {
			interval += time.Duration(float64(interval) * (smallMargin + part*smallJitter))
		} else {
			interval += time.Duration(float64(interval) * part)
		}
		if p.lastSlot.Add(interval).After(at) {
			at = p.lastSlot.Add(interval)
		}
	}
	if sleep = at.Sub(now); sleep > most {
		return sleep, false
	}
	if at.After(p.lastSlot) {
		p.lastSlot = at
	}
	p.inFlight++
	if sleep == 0 {
		p.send(now)
	}
	return sleep, true
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
	interval := p.interval()
	due := p.lastSent.Add(interval)
	early := interval / 2 // jitter brings some requests closer than their interval
	if p.reserve() == 0 || p.blind.rate > 0 {
		early = 0 // without a reserve the early one is denied
	}
	if due.Add(-early).After(now) {
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
		p.count(now, 0)
		p.denied(now, sameWave)
		return
	}
	p.count(now, 1)
	p.allowed(elapsed)
}

// hold lets no request go for so long.
func (p *Pacer) hold(now time.Time, wait time.Duration) {
	if until := now.Add(min(wait, maxHold)); wait > 0 && until.After(p.holdUntil) {
		p.holdUntil = until
	}
}

// count counts allowed requests.
func (p *Pacer) count(now time.Time, allowed int) {
	p.responses += allowed
	elapsed := now.Sub(p.windowStart).Seconds()
	rate := float64(p.responses) / max(elapsed, 1)
	if elapsed > answerWindow || p.windowStart.IsZero() {
		p.windowRate, p.responses, p.windowStart = rate, 0, now
	}
	p.windowRate = max(rate, p.windowRate)
}

// learn stores what a response says of the limit.
func (p *Pacer) learn(now time.Time, elapsed float64, a retryafter.Answer) {
	if a.Remaining < 0 {
		return
	}
	if a.Policy != p.policy {
		p.policy, p.rate, p.capacity, p.fullAt, p.known = a.Policy, 0, 0, 0, false
		p.window, p.highest, p.fallen, p.responded = window{}, 0, 0, 0
	}
	if a.Capacity > 0 {
		p.capacity = a.Capacity
	}
	switch {
	case a.Rate <= 0:
	case !a.Derived:
		p.rate = a.Rate
	default:
		// The server rounds seconds up, so the largest is the most exact.
		p.rate = max(p.rate, a.Rate)
	}
	left := a.Remaining
	if !a.Denied {
		p.window.learn(now, a, p.rate)
	}
	if p.window.fixed && p.capacity > 0 {
		p.rate = p.capacity / p.window.length.Seconds()
		left = max(p.reserve()-p.window.ahead(now, a.Remaining, p.capacity), 0)
		if a.Remaining == 0 {
			p.hold(now, p.window.end.Sub(now))
		}
	}
	if p.known {
		p.fallen += p.remaining - a.Remaining + p.rate*elapsed
		if p.responded++; p.responded > 64 {
			p.fallen, p.responded = p.fallen/2, p.responded/2
		}
	}
	p.highest = max(p.highest, a.Remaining)
	p.rising = p.known && left > p.left
	if p.known && p.pacing && left == p.left && left >= p.highest {
		p.unchanged++
	} else {
		p.unchanged, p.oldShare = 0, p.share
	}
	p.known, p.remaining, p.left = true, a.Remaining, left
	if p.unchanged > 0 && (p.share > p.oldShare*fullAfter || p.share < p.oldShare/fullAfter) {
		p.fullAt = p.remaining + 1
	} else if p.remaining >= p.fullAt {
		p.fullAt = 0
	}
	p.setShare(p.share)
}
