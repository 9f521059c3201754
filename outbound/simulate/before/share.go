package before

import (
	"math"
	"time"
)

const (
	// exponentScale, in reserves, is the change of remaining that changes the rate by a factor
	// of e. With less, the rate oscillates: a client acts on what it saw one interval ago, which is
	// stable while the reserve is more than half the number of clients. In a small bucket it is at
	// least as many units as there seem to be clients. With half of it, most/least of 40 clients of 75 a
	// minute is 4.5; with twice, they are denied 8 %.
	exponentScale = 1.2

	// steepness is the power of remaining that the common share is. Ten clients settle at 67 % of the
	// reserve, a hundred at 44 %. With less, many would empty the bucket: with 4, 200 clients of 50 a second
	// burst 100 are denied 8 %. With more, chance in remaining would change the shares more: with 6,
	// most/least of 1 a second burst 5 is 2.5.
	steepness = 5.0
	// A share comes closer to the common share by a factor of e in the time of followReserves reserves
	// and followUnits units at the server's rate, and followTime. The reserves keep it much slower
	// than the exponential, without which remaining would oscillate; the units average chance in
	// remaining; the time is that of many latencies. With twice the reserves, two clients of 4500 an hour
	// leave 2 % unused for half an hour; without units, a bucket of two units has a most/least of 28; without
	// the time, 2.4 % of 1000 a second are denied.
	followReserves, followUnits = 20, 300
	followTime                  = 30 * time.Second
	// followOnDenial is the part of the way to the common share, then that of an empty bucket, for a
	// denial, once for all requests in flight. It takes more from a large share than from a small one.
	// Without it, 30 clients of 4500 an hour whose bucket is empty are denied 92 %.
	followOnDenial = 0.15

	// startReserve, in units, is the remaining at which pacing begins, unless the reserve is smaller, and the
	// reserve of a bucket of unknown capacity. With twice as many, four clients of 10 a second that see
	// remaining alone use 35 %.
	startReserve = 8.0
	// initialShare of the rate is the first rate if that is unknown: half, since there may be one
	// other client. With all of it, twice as many are denied in the story of simulate, where remaining alone is
	// told.
	initialShare = 0.5
	// maxShare bounds the share of an unknown rate.
	maxShare = 1e9
	// assumedRate, in units a second, stands in for an unknown rate. With half of it, 2.7 % of Shopify's
	// requests are denied.
	assumedRate = 1.0
	// maxInterval is the longest interval at an unknown rate, and maxClients, in intervals of the
	// limit, the longest at a known one: so many clients may share the limit evenly. With half as many, ten
	// clients of a bucket of one unit are denied 7 %. It is at most maxHold.
	maxInterval = time.Minute
	maxClients  = 256
)

// backoffFactor returns the factor by which remaining changes the rate: 1 at the reserve.
func (p *Pacer) backoffFactor() float64 {
	reserve := p.reserve()
	if reserve == 0 || !p.known {
		return 1
	}

	scale := exponentScale * reserve
	if p.follows() {
		clients := 1 / p.share // so many there seem to be
		if p.window.fixed {
			clients /= 2 // or the window would be used up early, and its end deny more
		}
		scale = max(scale, clients)
	}
	return math.Exp((p.left - reserve) / scale)
}

// follow moves the share closer to the common share, by a part of the logarithm of their ratio.
func (p *Pacer) follow(part float64) {
	reserve := p.reserve()
	common := min(max(math.Pow(p.left/reserve, steepness), 1.0/maxClients), 1)
	p.setShare(p.share * math.Pow(common/p.share, part))
}

// follows reports whether there is a common share: remaining tells the clients of each other, in
// units that all of them know.
func (p *Pacer) follows() bool { return p.rate > 0 && p.reserve() > 0 }

// followSeconds returns how long a share takes to come e times closer to the common share.
func (p *Pacer) followSeconds() float64 {
	return (followReserves*p.reserve()+followUnits)/p.rate + followTime.Seconds()
}

// startPacing sets the share so that the first rate is initialShare of the server's.
func (p *Pacer) startPacing() {
	p.pacing = true
	share := initialShare
	if p.responded >= minResponded {
		share = 1 / p.clients()
	}
	p.share = share
	p.setShare(share / min(p.backoffFactor(), 1))
}

// allowed updates the share after a response that is no denial, elapsed seconds after the
// response before.
func (p *Pacer) allowed(elapsed float64) {
	p.again = false
	switch {
	case !p.pacing:
		reserve := max(min(p.reserve(), startReserve), 1)
		if p.known && !p.few() && p.remaining-float64(p.inFlight) < reserve {
			p.startPacing()
		}
	case p.follows():
		p.follow(1 - math.Exp(-elapsed/p.followSeconds()))
	default:
		p.adjust(elapsed)
	}
}

// denied lowers the rate after a denial. Denials of requests that were on their way together count once.
func (p *Pacer) denied(now time.Time, sameWave bool) {
	p.fullAt = 0
	if sameWave {
		return
	}
	p.sameWave = p.sent

	switch {
	case !p.known || p.few() || p.remaining > max(p.reserve(), 1):
		// No field describes the limit that denied the request.
		p.blind.denied(now, blindCut)
	case !p.pacing:
		p.startPacing()
	case p.follows():
		p.follow(followOnDenial)
	case !p.again:
		p.setShare(p.share * (1 - decreaseOnDenial))
	default: // nothing else tells that there are many clients
		p.setShare(p.share * decreaseAgain)
	}
	p.again = true
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
