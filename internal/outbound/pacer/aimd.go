package pacer

import "math"

const (
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
	decreaseAgain = 0.5
)

// adjust is for a limit without a common share: an unknown rate, or a bucket too small for a reserve.
// Above the reserve it increases the share, below it decreases it. Additive increase and multiplicative
// decrease (AIMD; Chiu and Jain 1989) make the shares of several clients equal in the long run.
func (p *Pacer) adjust(elapsed float64) {
	reserve := p.reserve()
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
		p.setShare(p.share + min(increase*excess*elapsed*boost, maxIncrease)*math.Sqrt(p.share))
	case !p.rising:
		p.setShare(p.share * (1 + decrease*excess))
	}
}
