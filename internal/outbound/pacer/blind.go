package pacer

import "time"

// blind paces by denials alone. It is for a limit that no field describes: the server sends none, or
// those of another limit than the one that denies. A denial lowers the rate, and each allowed
// request raises it again: soon to a little less than the rate that was denied, slowly beyond.
//
// A client that is denied often lowers its rate less for each denial. Otherwise one that sends little
// would never get its part: whether it is denied depends on the others.
type blind struct {
	rate    float64 // requests a second; 0 before the first denial
	highest float64 // the rate that was last denied after blindRun allowed requests; others make it fade
	run     int     // allowed requests since the last denial
	load    float64 // the denied part of the last requests
}

const (
	// blindStart, in requests a second, is the least rate after the first denial.
	blindStart = 4.0
	// blindDecrease is the part of the rate that a denial takes after blindRun allowed requests,
	// less after fewer.
	blindDecrease, blindRun = 0.15, 10
	// blindCollapse is the factor of a denial when more than blindOverload of the last requests
	// were denied.
	blindCollapse, blindOverload = 0.5, 0.35
	// blindLoad is the weight of a request in load.
	blindLoad = 0.125
	// blindGrowth, in requests a second, is the growth for each allowed request times the rate: a rate
	// grows by half a percent a second. The slower of two clients then grows by more for each
	// request, and is denied as often for each, so that their rates become equal.
	blindGrowth = 0.005
	// maxBlindGrowth bounds the growth for each request, and so the denied part: 2 to 4 % are denied
	// at the bound. minBlindGrowth lets a fast client find more room within minutes.
	minBlindGrowth, maxBlindGrowth = 0.001, 0.004
	// blindRecovery is the growth below blindFar of highest.
	blindRecovery, blindFar = 0.0125, 0.5
	// blindForget is the factor of highest for a denial after few allowed requests.
	blindForget = 0.9
	// maxBlindInterval bounds the interval, unless Pacer.MaxInterval does.
	maxBlindInterval = 10 * time.Minute
	// answerWindow, in seconds, is the length of the windows in which allowed requests are counted.
	answerWindow = 10
)

// denied lowers the rate. Before it, allowed requests a second passed.
func (b *blind) denied(allowed float64, maxInterval time.Duration) {
	b.load += blindLoad * (1 - b.load)
	switch {
	case b.rate == 0:
		b.highest = max(allowed, 2*blindStart)
		b.rate = b.highest * initialShare
		b.load = blindOverload
	case b.load > blindOverload:
		b.highest = min(b.highest, b.rate)
		b.rate *= blindCollapse
	default:
		b.highest = max(b.highest*blindForget, b.rate)
		if b.run >= blindRun {
			b.highest = b.rate
		}
		b.rate *= 1 - blindDecrease*float64(min(b.run, blindRun))/blindRun
	}
	b.run = 0
	b.rate = max(b.rate, 1/maxInterval.Seconds())
}

func (b *blind) allowed() {
	b.load -= blindLoad * b.load
	b.run++
	growth := min(max(blindGrowth/b.rate, minBlindGrowth), maxBlindGrowth)
	if b.rate < b.highest*blindFar {
		growth = blindRecovery
	}
	b.rate = min(b.rate*(1+growth), maxShare)
}

func (b *blind) interval() time.Duration {
	if b.rate == 0 {
		return 0
	}
	return time.Duration(float64(time.Second) / b.rate)
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
