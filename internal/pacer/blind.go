package pacer

import (
	"math"
	"time"
)

// blind paces by denials alone. It is for a limit that no field describes: the server sends none, or
// those of another limit than the one that denies. A denial lowers the rate, and each allowed
// request raises it again: soon to a little less than the rate that was denied, slowly beyond.
type blind struct {
	rate    float64 // requests a second; 0 before the first denial
	highest float64 // the rate that was last denied
	denials int     // in a row
}

const (
	// blindStart, in requests a second, is the least rate after the first denial.
	blindStart = 4.0
	// blindDecrease is the factor of a denial, and blindDecreaseAgain that of one that follows
	// another.
	blindDecrease, blindDecreaseAgain = 0.85, 0.5
	// blindGrowth is the growth for each allowed request at one a second. The slower of two
	// clients grows faster, by the fourth root of the rate.
	blindGrowth = 0.003
	// blindRecovery is the growth below blindNear of the rate that was last denied.
	blindRecovery, blindNear = 0.025, 0.95
	// maxBlindInterval bounds the interval, unless Pacer.MaxInterval does.
	maxBlindInterval = 10 * time.Minute
)

// denied lowers the rate. Before it, allowed requests a second passed.
func (b *blind) denied(allowed float64, maxInterval time.Duration) {
	switch {
	case b.rate == 0:
		b.highest = max(allowed, 2*blindStart)
		b.rate = b.highest * initialShare
	case b.denials == 0:
		b.highest = b.rate
		b.rate *= blindDecrease
	default:
		b.highest = min(b.highest, b.rate)
		b.rate *= blindDecreaseAgain
	}
	b.denials++
	b.rate = max(b.rate, 1/maxInterval.Seconds())
}

func (b *blind) allowed() {
	b.denials = 0
	growth := blindRecovery
	if b.rate > b.highest*blindNear {
		growth = min(blindGrowth/math.Sqrt(math.Sqrt(b.rate)), blindRecovery)
	}
	b.rate = min(b.rate*(1+growth), maxShare)
}

func (b *blind) interval() time.Duration {
	if b.rate == 0 {
		return 0
	}
	return time.Duration(float64(time.Second) / b.rate)
}
