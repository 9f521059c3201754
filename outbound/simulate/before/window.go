package before

import (
	"cmp"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/internal/retryafter"
)

// window finds out from the resets whether a limit has fixed windows, in which everything is allowed
// again at one moment. In a bucket the reset moves on with each unit that is used, in a fixed window
// it stays.
type window struct {
	fixed   bool
	sliding bool // it seemed fixed and was not

	irregular bool    // a reset is not that of a bucket, which is longer the more was used
	rate      float64 // units a second that a bucket would have at most by its resets so far

	end       time.Time     // of this window
	length    time.Duration // of a window, or the longest time to a reset so far
	since     time.Time     // the first response in this window
	remaining float64       // in it
}

const (
	// resetError is more than the rounding of a reset to seconds, with some latency. With half of it,
	// most/least of two policies is 30.
	resetError = 1200 * time.Millisecond
	// fixedAfter is how far the reset of a bucket would have moved before a reset that stays counts
	// as that of a fixed window. With half of it, most/least of 10 a second burst 1000 is 29; with twice, a
	// window of 10 in 4 s is used to 86 %.
	fixedAfter = 3 * time.Second
)

// learn is for allowed requests; rate is units a second, 0 if unknown.
func (w *window) learn(now time.Time, a retryafter.Answer, rate float64) {
	if a.Reset == 0 || a.Remaining < 0 || w.sliding {
		return
	}

	end := now.Add(a.Reset)
	w.length = cmp.Or(a.Window, max(w.length, a.Reset))

	drift := end.Sub(w.end)
	switch {
	case w.end.IsZero():

	// The same window: its reset stays.
	case drift.Abs() <= resetError:
		if drift < 0 { // seconds are rounded up
			w.end = end
		}
		moved := now.Sub(w.since).Seconds()
		if rate > 0 && a.Reset.Seconds() > 1/rate+1 { // or it may be that of a bucket's next unit
			moved += max(w.remaining-a.Remaining, 0) / rate
		}
		if a.Remaining < w.remaining && moved >= fixedAfter.Seconds() {
			w.fixed = true
		}
		return

	// The next window before the end of this one, or soon after.
	case w.fixed && (now.Before(w.end.Add(-resetError)) || drift < w.length/2):
		w.fixed, w.sliding = false, true
		return
	}
	w.end, w.since, w.remaining = end, now, a.Remaining
}

// isBucket reports whether the resets so far are those of a bucket, in which they are the used units
// divided by the rate. a has a derived rate.
func (w *window) isBucket(a retryafter.Answer) bool {
	if a.Reset > resetError {
		highest := (a.Capacity - a.Remaining) / (a.Reset - resetError).Seconds()
		if w.rate == 0 || highest < w.rate {
			w.rate = highest
		}
	}
	w.irregular = w.irregular || w.rate > 0 && a.Rate > w.rate
	return !w.irregular
}

// ahead returns how many units of capacity the clients have used more than an even use of the window.
func (w *window) ahead(now time.Time, remaining, capacity float64) float64 {
	left := max(w.end.Sub(now), 0)
	return capacity*left.Seconds()/w.length.Seconds() - remaining
}
