package pacer

import (
	"math"
	"time"
)

// learned is what denials teach of a limit.
type learned struct {
	pace     float64 // requests a second; 0 for no bound
	base     float64 // the pace at opening
	age      float64 // of the growth since then
	learning bool    // the pace is a guess

	count float64   // allowed since began
	began time.Time // the end of a closed time, or the first answer
	at    time.Time // the last allowed request

	closed time.Time // the begin of a closed time; zero while open
	asks   asking    // in it, where no wait is told
	length float64   // of a closed time, in seconds
	untold bool      // the fields do not explain it
}

// denied is for a denial that tells a wait, or 0.
func (l *limit) denied(now time.Time, wait time.Duration) {
	l.hold = latest(l.hold, now.Add(wait))
	if l.began.IsZero() {
		l.began = now
	}
	if l.closed.IsZero() {
		l.closed, l.untold = now, false
	}
	if wait == 0 {
		l.asks.no(now, l.sent)
	}

	// Where others can be counted, what is told says enough. A request may cost more than one unit.
	l.untold = l.untold || !l.known || l.remaining >= few || l.answers == 0 || l.sliding
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
	l.length = max(closed, l.length/2)
	all := max(now.Sub(l.began).Seconds(), closed)

	switch enough := l.count >= few; {
	case enough && (l.pace == 0 || l.learning):
		l.pace, l.learning = l.count/all, false
	case enough:
		l.pace = max(min(l.count/all, l.pace*(1-cut)), l.pace/2)
	case l.pace == 0:
		l.pace, l.learning = max(l.count, few/4)/all, true
	default:
		l.pace *= 1 - cut
	}
	if l.count >= few {
		l.count, l.began = 0, now
	}
	l.base, l.age = l.pace, 0
}

// grow raises the pace after an allowed request, so many seconds after the one before.
func (l *learned) grow(since float64) {
	if l.learning {
		l.pace *= math.Exp2(min(since/max(doublesIn.Seconds(), l.length/few), 1))
		return
	}
	if since > 2/l.pace {
		return // something else is slower
	}
	unit := max(l.length, doublesIn.Seconds())
	if l.base*l.length < 2 {
		unit = max(unit, doubles/l.pace)
	}
	l.age += since / unit
	l.pace = min(l.base+min(1/l.length, cut*l.base)*(math.Exp2(l.age)-1), 1e9)
}
