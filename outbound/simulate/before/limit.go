package before

import (
	"cmp"
	"strings"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/internal/retryafter"
)

const (
	// maxReserve, in units, is the reserve of a large bucket: enough for about 240 clients, as
	// exponentScale says, and little of a large limit. It is not larger for a client that infers more
	// others: one with a large share would infer few, leave a small reserve and so take more. With twice as
	// many, one client of 4500 an hour leaves 8 % unused for half an hour.
	maxReserve = 128.0
	// reserveFraction of a smaller bucket's capacity is its reserve, with as much room above as below. With
	// half of it, ten clients of a bucket of two units are denied 18 %.
	reserveFraction = 0.5
	// fixedReserveFraction is the part of a fixed window that its use may be ahead of an even one. With
	// twice of it, 40 clients of 75 a minute are denied 12 %.
	fixedReserveFraction = 0.1
	// leastFixedReserve, in units, is the least reserve of a fixed window. With 1, a window of 10 in 4 s is
	// used to 83 %.
	leastFixedReserve = 1.5
	// maxPolicy, in bytes, bounds what is kept of a policy's name.
	maxPolicy = 128
	// minResponded responses say how many clients there seem to be. With one, most/least of 100 a second
	// burst 20 is 12 where remaining is all that the server tells.
	minResponded = 2
	// fullAfter is the factor by which the share changes, with remaining unchanged, until the
	// bucket counts as full: if there were room above, remaining would have changed. Without it, one client
	// of 10 a second that sees remaining alone uses 77 %.
	fullAfter = 2.0
)

// learn stores what a response says of the limit.
func (p *Pacer) learn(now time.Time, elapsed float64, a retryafter.Answer) {
	if a.Remaining < 0 {
		return
	}

	if policy := a.Policy[:min(len(a.Policy), maxPolicy)]; policy != p.policy {
		p.policy = strings.Clone(policy) // it is a part of the field
		p.rate, p.capacity, p.fullAt, p.known = 0, 0, 0, false
		p.window, p.highest, p.fallen, p.responded = window{}, 0, 0, 0
	}

	p.capacity = cmp.Or(a.Capacity, p.capacity)
	switch {
	case a.Rate <= 0:
	case !a.Derived:
		p.rate = a.Rate
	case p.window.isBucket(a):
		// The server rounds seconds up, so the largest is the most exact.
		p.rate = max(p.rate, a.Rate)
	default:
		p.rate = 0
	}

	// In a fixed window, what would remain in a bucket.
	left := a.Remaining
	if !a.Denied {
		p.window.learn(now, a, p.rate)
	}
	if p.window.fixed && p.capacity > 0 {
		p.rate = p.capacity / p.window.length.Seconds()
		left = max(p.reserve()-p.window.ahead(now, a.Remaining, p.capacity), 0)
	}

	// Nothing remains until the reset. In a window that has a reserve, what remains when there are more clients than
	// units is left: each would ask once more to find out that it is used up.
	leave := p.pacing && a.Remaining < min(p.clients(), p.reserve())
	switch {
	case p.few():
		if a.Remaining <= float64(p.sent) { // those on their way take the rest
			p.hold(now, a.Reset)
		}
	case p.window.fixed && (a.Remaining == 0 || leave):
		p.hold(now, p.window.end.Sub(now))
	}

	// More than half of the limit returned between two responses, and no field says when.
	if p.known && p.rate == 0 && a.Reset == 0 && p.capacity > 0 && a.Remaining-p.remaining > p.capacity/2 {
		p.window.irregular = true
	}

	if p.known {
		p.fallen += p.remaining - a.Remaining + p.rate*elapsed
		if p.responded++; p.responded > 64 {
			p.fallen, p.responded = p.fallen/2, p.responded/2
		}
	}

	// While remaining does not change, nobody else uses the limit, or the bucket is full.
	p.highest = max(p.highest, a.Remaining)
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

	p.setShare(p.share) // its bounds depend on the rate
	if p.few() && p.pacing {
		p.pacing = false
		p.blind.begin(now, p.share*p.rate)
	}
}

// few reports whether remaining says only when a limit is used up: a sliding window does not tell when
// more returns, a small one has no reserve, and in another the reset is not told.
func (p *Pacer) few() bool {
	w := &p.window
	small := p.capacity > 0 && p.capacity*fixedReserveFraction < leastFixedReserve
	return w.sliding || (w.fixed || w.irregular) && small || w.irregular && w.end.IsZero()
}

// reserve returns how many units the clients leave in the bucket; 0 in a small bucket.
func (p *Pacer) reserve() float64 {
	reserve := startReserve
	if p.capacity > 0 {
		part := reserveFraction
		if p.window.fixed {
			part = fixedReserveFraction
		}
		reserve = min(p.capacity*part, maxReserve)
	}

	if p.fullAt > 0 { // half of it: other clients may not have found out
		reserve = min(reserve, p.fullAt/2)
	}
	if reserve < 1 {
		return 0
	}
	return reserve
}

// clients returns how many clients seem to share the limit: the units used for each own response.
func (p *Pacer) clients() float64 {
	if p.responded < minResponded {
		return 1
	}
	return max(p.fallen/p.responded, 1)
}
