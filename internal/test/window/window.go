// Package window checks the bound of a limiter from outside: in no interval of time is
// more allowed than the burst and what the interval adds.
package window

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Call is a request that was allowed, or with negative units a refund. When it took
// effect is not known: at some moment from begin to end, by one clock.
type Call struct {
	Begin, End time.Duration
	Units      int64
}

// Excess is how many units more than the bound, Burst + D·Count/Per, the calls have
// taken in the worst window. A window has the charges that lie in it as a whole, and
// the refunds of which any part lies in it: so it is never too strict. Where all is
// well the result is at most 0. A quota has no refill.
//
// One sweep over the times keeps what each window that is open has taken, less what
// has refilled. All windows that begin before the oldest call under way will see the
// same from then on, so only the worst of them is kept.
func Excess(calls []Call, limit gcra.Limit) float64 {
	const opens, closes, refunds, refunded = 0, 2, 1, 3 // in this order at one time
	type event struct {
		at   time.Duration
		kind int
		Call
	}

	var events []event
	for _, c := range calls {
		if c.Units >= 0 {
			events = append(events, event{c.Begin, opens, c}, event{c.End, closes, c})
		} else {
			events = append(events, event{c.Begin, refunds, c}, event{c.End, refunded, c})
		}
	}

	slices.SortFunc(events, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind)) })

	perTime, burst := 0.0, float64(limit.Count) // in units a nanosecond
	if !limit.IsQuota() {
		perTime = float64(limit.Count) / float64(limit.Per)
		burst = float64(cmp.Or(limit.Burst, limit.Count))
	}

	type window struct {
		begin time.Duration
		taken float64 // units, and what refilled until begin
	}

	var windows []window
	var underWay []time.Duration // the begins of charges that have not ended, in order
	refunding, worst := 0.0, math.Inf(-1)
	for _, e := range events {
		units := float64(e.Units)
		switch e.kind {
		case opens:
			windows = append(windows, window{e.at, float64(e.at)*perTime + refunding})
			underWay = append(underWay, e.Begin)
		case refunds:
			for i := range windows {
				windows[i].taken += units
			}
			refunding += units
		case refunded:
			refunding -= units
		case closes:
			now := burst + float64(e.at)*perTime
			for i := range windows {
				if windows[i].begin <= e.Begin {
					windows[i].taken += units
				}
				worst = max(worst, windows[i].taken-now)
			}

			i, _ := slices.BinarySearch(underWay, e.Begin)
			underWay = slices.Delete(underWay, i, i+1)
			oldest := e.at
			if len(underWay) > 0 {
				oldest = underWay[0]
			}
			keep := 0
			for keep+1 < len(windows) && windows[keep+1].begin <= oldest {
				keep++
				windows[keep].taken = max(windows[keep].taken, windows[keep-1].taken)
			}
			windows = slices.Delete(windows, 0, keep)
		}
	}

	return worst
}
