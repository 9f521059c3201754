package before

import (
	"cmp"
	"math"
	"time"
)

// blind paces by denials and clocks alone. It is for a limit that no field describes: the server sends
// none, or those of another limit than the one that denies.
//
// All denials without an allowed request between them are one piece of evidence: the limit was used up.
// Meanwhile the interval grows with each. From the end of one such time to the end of the next, the allowed
// requests are what the limit gave this client, be it a bucket or a window. So the rate then begins again
// a little below that, and grows until the next denial: slowly if that cost much time, be it the rest of
// a window or a block.
type blind struct {
	rate    float64 // requests a second; 0 before the first denial
	denials int     // since the last allowed request
	cut     float64 // the part of the rate that the first of them takes

	first    time.Time // when the first request was allowed
	began    time.Time // the same after the last denials
	deniedAt time.Time // the first of these denials

	run      float64 // requests allowed since began
	allowed  float64 // requests in the last runs
	seconds  float64 // that these took
	measured float64 // what the limit gave, in requests a second, by the last runs
	growth   float64 // seconds in which the rate grows by a cut, if more than blindSeconds
}

const (
	// blindStart, in requests a second, is the least rate after the first denial. With a fifth of it, or
	// twice, one more of the worlds of simulate, played with three seeds, misses what is promised there.
	blindStart = 5.0
	// blindCut is the part of its rate that a denied client gives up. Of the rate that it measures, which
	// is lower, it gives up half as much. With half of it, four more worlds miss it; with half as much again, three.
	blindCut = 0.08
	// blindSeconds is the least time in which a rate grows by what a denial takes. It is the same for all
	// clients, while those with a higher rate are denied more often: so their rates become equal. With 40, two
	// more worlds miss it.
	blindSeconds = 60.0
	// blindLeast times as long as the last denials took is the least, too, since others are due after it: a
	// client that is alone is denied at most once in so many requests, and blocked for so much of its time. A
	// rate is measured over as many requests, or chance in the first answers would decide which clients get
	// most. With half of it, 7 % of 75 a minute are denied.
	blindLeast = 17.0
	// blindBackoff is the factor of the interval for each further denial. With a larger one, chance
	// decides which of many clients begins first: with 2, 30 clients of 10 a second have a most/least of 34. With a
	// smaller one a closed window is asked more often: with 1.1, two clients of Amazon SP-API are denied 42 %, not 31.
	blindBackoff = 1.25
	// blindHigher is the factor by which a limit gave more than before if the last denials were not the end of a
	// window, which gives the same again: then the rate that was denied says more than what was allowed. Without it,
	// a partner that blocks its clients for 30 seconds is used to 16 %.
	blindHigher = 1.25
	// maxBlindInterval bounds the interval, unless Pacer.MaxInterval does. With a minute, 6 % of the requests
	// to 10000 a day are denied in the first days.
	maxBlindInterval = 10 * time.Minute
)

// idle takes a time without requests out of the measure.
func (b *blind) idle(d time.Duration) {
	if b.denials == 0 && !b.began.IsZero() {
		b.began = b.began.Add(d)
	}
}

// denied is for a denial, with a cut of blindCut, or for an allowed request after which nothing remains.
// That took no more than the limit gave, so its cut is 0.
func (b *blind) denied(now time.Time, cut float64) {
	if b.denials == 0 {
		b.deniedAt, b.cut = now, 0
	}
	b.denials++
	b.cut = max(b.cut, cut)
	b.rate = cmp.Or(b.rate, max(b.given(now), blindStart))
}

// given is what the limit has given this client since began, in requests a second. That is taken as a second
// at least: a limit of requests at the same time may deny within a millisecond.
func (b *blind) given(now time.Time) float64 { return b.run / max(now.Sub(b.began).Seconds(), 1) }

// begin sets the first rate where something else paced until now: what the limit gave this client, or other
// if it gave nothing. Any other rate is one of chance, and clients become equal slowly.
func (b *blind) begin(now time.Time, other float64) {
	b.rate = cmp.Or(b.rate, b.given(now), other)
}

func (b *blind) answered(now time.Time) {
	switch {
	case b.began.IsZero():
		b.first, b.began = now, now
	case b.denials > 0:
		b.measure(now)
		b.denials, b.began, b.run = 0, now, 0
	case b.rate > 0:
		// After a time that is longer than a cut is worth, the limit is higher than it was.
		growth := max(min(max(b.growth, blindSeconds), now.Sub(b.first).Seconds()), 1)
		since := now.Sub(b.began).Seconds()
		b.rate = min(b.rate+blindCut/growth*max(since/growth, 1), maxShare)
	}
	b.run++
}

// measure sets the rate at the end of a time of denials, and how fast it grows.
func (b *blind) measure(now time.Time) {
	if b.allowed > blindLeast {
		b.allowed, b.seconds = blindLeast, b.seconds*blindLeast/b.allowed
	}
	b.allowed += b.run
	b.seconds += max(now.Sub(b.began).Seconds(), 0)

	b.rate *= 1 - b.cut
	if b.seconds > 0 {
		before := b.measured
		b.measured = (b.allowed + 1) / b.seconds
		if before == 0 || b.measured <= before*blindHigher {
			b.rate = min(b.rate, b.measured*(1-b.cut/2))
		}
	}

	// A client that has known the limit for a short time may have learned little.
	b.growth = min(blindLeast*now.Sub(b.deniedAt).Seconds(), now.Sub(b.first).Seconds())
}

func (b *blind) interval(longest time.Duration) time.Duration {
	if b.rate == 0 {
		return 0
	}
	seconds := math.Pow(blindBackoff, float64(max(b.denials-1, 0))) / b.rate
	return time.Duration(min(seconds, longest.Seconds()) * float64(time.Second))
}
