package before

import (
	"cmp"
	"math"
)

const (
	// increase is the growth of a share a second, at remaining of twice the reserve or more,
	// times the square root of the share. A client takes over within minutes what another has
	// left unused. The shares must change more slowly than the exponential for both to settle. With half
	// of it, ten clients of a bucket of one unit are denied 29 % and not 4.
	increase = 0.003
	// maxIncrease bounds the growth by one response, however long ago the last one was. No world needs it: a
	// client that was idle for an hour does.
	maxIncrease = 0.1
	// maxBoost bounds the factor by which a share grows faster while remaining does not change. Without it,
	// one client of a bucket of one unit that sees remaining alone is denied 30 %.
	maxBoost = 10.0
	// decrease is the part of its share that a client gives up for each response with nothing
	// remaining. 35 of them halve it; a single one matters little. Without it, most/least of ten clients of
	// 4500 an hour that see remaining alone is 3.4.
	decrease = 0.02
	// decreaseOnDenial is the same for a denial, once for all requests in flight. With 0.5, the same ten
	// clients have 2.5.
	decreaseOnDenial = 0.2
	// decreaseAgain is the factor of a denial that follows another: there are many more clients
	// than the share is for. With 0.8, ten clients of a bucket of one unit are denied 48 %.
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
	if excess < 0 {
		p.setShare(p.share * (1 + decrease*excess))
		return
	}

	boost := min(float64(1+p.unchanged), maxBoost)
	elapsed *= min(cmp.Or(p.rate, assumedRate), 1)
	p.setShare(p.share + min(increase*excess*elapsed*boost, maxIncrease)*math.Sqrt(p.share))
}
