package pacer

import (
	"math"
	"time"
)

// learned is what denials teach of a limit.
type learned struct {
	pace  float64 // requests a second; 0 for no bound
	base  float64 // the pace at opening
	age   float64 // of the growth since then
	guess bool    // the pace is from too few requests

	count float64   // allowed since began
	began time.Time // the last opening, or the first answer
	at    time.Time // the last allowed request

	closed time.Time // the begin of a closed time; zero while open
	untold bool      // the fields do not explain it
	asks   asking    // in it, where no wait is told
	length float64   // of a closed time, in seconds
}

// denied is for a denial that tells a wait, or 0.
func (l *limit) denied(now time.Time, wait time.Duration) {
	l.hold = latest(l.hold, now.Add(wait))
	if l.began.IsZero() {
		l.began = now
	}
	if wait == 0 {
		l.asks.no(now, l.sent)
	}
	if !l.closed.IsZero() {
		return
	}

	// Where others can be counted, what is told says enough. A request may cost more than one unit.
	l.closed = now
	l.untold = !l.known || l.remaining >= few || l.answers == 0
	if l.known && l.window && l.remaining < few {
		l.spare = max(l.spare, l.remaining)
	}
}

// allowed is for an allowed request.
func (l *limit) allowed(now time.Time) {
	switch {
	case l.began.IsZero():
		l.began = now
	case !l.closed.IsZero():
		if l.untold {
			l.open(now)
		}
		l.closed, l.asks = time.Time{}, asking{}
	case l.pace > 0:
		l.grow(now.Sub(l.at).Seconds())
	}
	l.count++
	l.at = now
}

// open sets the pace at the end of a closed time.
func (l *learned) open(now time.Time) {
	closed := max(now.Sub(l.closed), firstAsk).Seconds()
	run := l.closed.Sub(l.began).Seconds()
	l.length = max(closed, l.length/2)

	switch measured := l.count / (run + closed); {
	case l.pace == 0 && l.count < few:
		l.pace, l.guess = 2.1/closed, true // with 1.5 a limit of 5 a second is found late, with 2.5 it is denied at once
	case l.pace == 0:
		l.pace = measured
	case l.guess || closed > run:
		l.pace, l.guess = max(min(measured, l.pace*(1-cut)), l.pace/2), false
	default:
		l.pace *= 1 - cut
	}
	l.base, l.age, l.count, l.began = l.pace, 0, 0, now
}

// grow raises the pace after an allowed request, so many seconds after the one before.
func (l *learned) grow(since float64) {
	unit := max(l.length, doublesIn.Seconds(), few/2/l.pace)
	if l.guess {
		unit = max(l.length/few, doublesIn.Seconds())
	} else if since > 2/l.pace {
		return // something else is slower
	}

	more := math.Exp2(min(since/unit, 1))
	if l.guess || l.age > steady {
		l.pace = min(l.pace*more, 1e9)
	} else {
		l.pace += min(1/l.length, cut*l.base) * math.Exp2(l.age) * (more - 1)
	}
	l.age += since / unit
}
