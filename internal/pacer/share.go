package pacer

import (
	"math"
	"time"
)

const (
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
	// initialShare of the rate is the first rate if that is unknown: half, since there may be one
	// other client.
	initialShare = 0.5
	// maxShare bounds the share of an unknown rate.
	maxShare = 1e9
	// assumedRate, in units a second, stands in for an unknown rate.
	assumedRate = 1.0
	// maxInterval is the longest interval at an unknown rate, and maxClients, in intervals of the
	// limit, the longest at a known one: so many clients may share the limit evenly. It is at most
	// maxHold.
	maxInterval = time.Minute
	maxClients  = 256
)

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

// startPacing sets the share so that the first rate is initialShare of the server's.
func (p *Pacer) startPacing() {
	p.pacing = true
	share := initialShare
	if p.responded >= minResponded {
		share = 1 / p.clients()
	}
	p.setShare(share / min(p.backoffFactor(), 1))
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

// setShare keeps the share within its bounds.
func (p *Pacer) setShare(share float64) {
	rate, upper := assumedRate, maxShare
	if p.rate > 0 {
		rate, upper = p.rate, 1
	}
	lower := min(1/(rate*p.maxInterval()), initialShare)
	p.share = min(max(share, lower), upper)
}

// maxInterval returns the longest interval of the algorithm in seconds, so that a client with a very
// small share still notices when there is room.
func (p *Pacer) maxInterval() float64 {
	if p.rate == 0 {
		return maxInterval.Seconds()
	}
	return min(max(maxInterval.Seconds(), maxClients/p.rate), maxHold.Seconds())
}
