package pacer

import (
	"math"
	"time"
)

// blind paces by denials and clocks alone. It is for a limit that no field describes: the server sends
// none, or those of another limit than the one that denies.
//
// All denials without an allowed request between them are one piece of evidence: the limit was used up.
// Meanwhile the interval grows with each. From the end of one such time to the end of the next, the allowed
// requests are what the limit gave this client, be it a bucket or a window. So the rate then begins again
// a little below that, and grows until the next denial.
type blind struct {
	rate    float64 // requests a second; 0 before the first denial
	denials int     // since the last allowed request
	cut     float64 // the part of the rate that the first of them takes

	began   time.Time // when the first request was allowed after denials, or the first of all
	run     float64   // requests allowed since then
	window  float64   // the run before, if the time of denials after it was that of a closed window
	allowed float64   // requests in the last runs
	seconds float64   // that these took
	total   float64   // allowed requests so far
}

const (
	// blindStart, in requests a second, is the least rate after the first denial. With a quarter of it, or
	// twice, clients that come first keep more: AWS has a most/least of 9, and 75 a minute 3.4.
	blindStart = 4.0
	// blindCut is the part of its rate that a denied client gives up. Of the rate that it measures, which
	// is lower, it gives up half as much. With less, clients become equal too slowly; with more, one that is
	// alone leaves more than a tenth of the limit unused.
	blindCut = 0.08
	// blindSeconds is the time in which a rate grows by what a denial takes. It is the same for all
	// clients, while those with a higher rate are denied more often: so their rates become equal. With half
	// of it, AWS has most/least 7.
	blindSeconds = 40.0
	// blindLeast allowed requests are the least for that growth, since a denial is due after it: one
	// that is alone is denied at most once in so many requests. The first of all count for more. A rate is
	// measured over as many, or chance in the first answers would decide which clients get most.
	// With half of it, 7.8 % of 75 a minute are denied.
	blindLeast = 20.0
	// blindBackoff is the factor of the interval for each further denial. With a larger one, chance
	// decides which of many clients begins first: with 2, AWS has most/least 13. With a smaller one a closed
	// window is asked more often: with 1.1, 900 in 15 minutes denies 8 %.
	blindBackoff = 1.25
	// blindClosed denials are more than chance: a window was closed, which opens with the whole limit. The
	// rate then grows during a window as it would in blindSeconds, or it would use the next one up early:
	// 900 in 15 minutes would deny 12 %. With 1, fields of another limit have a most/least of 3.9.
	blindClosed = 5
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
	if b.denials++; b.denials == 1 || cut > 0 {
		b.cut = cut
	}
	if b.rate == 0 {
		// Over a second at least: a limit of requests at the same time may deny within a millisecond.
		b.rate = max(b.run/max(now.Sub(b.began).Seconds(), 1), blindStart)
	}
}

// begin sets the first rate where something else paced until now: what the limit gave this client, or other
// if it gave nothing. Any other rate is one of chance, and clients become equal slowly.
func (b *blind) begin(now time.Time, other float64) {
	switch {
	case b.rate > 0:
	case b.run > 0:
		b.rate = b.run / max(now.Sub(b.began).Seconds(), 1)
	default:
		b.rate = other
	}
}

func (b *blind) answered(now time.Time) {
	switch {
	case b.began.IsZero():
		b.began = now
	case b.denials > 0:
		b.measure(now)
		b.denials, b.began, b.run = 0, now, 0
	case b.rate > 0:
		// After a run that is longer than a cut is worth, the limit is higher than it was.
		run := max(b.window, min(max(blindSeconds*b.rate, blindLeast), b.total))
		b.rate = min(b.rate*(1+blindCut/run*max(b.run/run, 1)), maxShare)
	}
	b.run++
	b.total++
}

// measure sets the rate at the end of a time of denials.
func (b *blind) measure(now time.Time) {
	b.window = 0
	if b.denials >= blindClosed {
		b.window = b.run
	}

	if b.allowed > blindLeast {
		b.allowed, b.seconds = blindLeast, b.seconds*blindLeast/b.allowed
	}
	b.allowed += b.run
	b.seconds += now.Sub(b.began).Seconds()

	b.rate *= 1 - b.cut
	if b.seconds > 0 {
		b.rate = min(b.rate, (b.allowed+1)/b.seconds*(1-b.cut/2))
	}
}

func (b *blind) interval(longest time.Duration) time.Duration {
	if b.rate == 0 {
		return 0
	}
	seconds := math.Pow(blindBackoff, float64(max(b.denials-1, 0))) / b.rate
	return time.Duration(min(seconds, longest.Seconds()) * float64(time.Second))
}
