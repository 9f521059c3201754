package pacer

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/internal/retryafter"
)

// limit is what is known of one limit.
type limit struct {
	fields
	learned

	hold   time.Time // as told
	sent   time.Time // the last request
	jitter float64   // of the next interval
	spread float64   // the part of an interval that passes after a told wait
	queue  []int64   // numbers of the requests that wait
}

// fields are what responses tell of a limit.
type fields struct {
	known     bool
	remaining float64 // units
	capacity  float64
	rate      float64       // units a second, of a bucket; 0 if unknown
	low, high float64       // the rate is between these if the limit is a bucket
	window    bool          // it is none: a reset was not that of a bucket
	sliding   bool          // nor did it fit a fixed window
	end       time.Time     // of the window; zero if unknown
	longest   time.Duration // the longest reset, or the told window
	told      time.Time     // when
	tight     bool          // few units remained for the requests to come, or one was denied

	spare         float64 // units that remained when a request was denied; it may have cost more
	used, answers float64 // units that all clients used, and own answers meanwhile
}

// due is when a request may be sent: an interval after the last one, for it and each that waits before it.
func (l *limit) due(now time.Time, id int64, longest time.Duration) time.Time {
	pace := l.toldPace(latest(now, l.hold))
	if l.pace > 0 {
		pace = min(pace, l.pace)
	}
	longest = cmp.Or(longest, maxHold)
	interval := time.Duration(min(1/pace, longest.Seconds()) * float64(time.Second))

	opens := l.hold
	if opens.After(l.sent) {
		opens = opens.Add(time.Duration(l.spread * float64(min(interval, longestAsk))))
	}
	if l.asks.n > 0 {
		tenth := time.Duration(l.length / 10 * float64(time.Second))
		interval = max(interval, min(l.asks.interval(min(interval, longestAsk), tenth), longest))
	}

	before, _ := slices.BinarySearch(l.queue, id)
	wait := min(float64(interval)*l.jitter*float64(before+1), float64(maxHold))
	return latest(opens, l.sent.Add(time.Duration(wait)))
}

// tell takes in what a response tells.
func (l *limit) tell(now time.Time, denied bool, flying int, t retryafter.Limit) {
	if !l.known || t.Capacity != l.capacity { // it has become another
		l.fields = fields{high: math.Inf(1)}
	}
	end := now.Add(t.Reset)
	same := end.Sub(l.end).Abs() <= resetError

	if t.Reset > 0 && !denied {
		l.classify(t)
		l.longest = max(l.longest, t.Reset, t.Window)
		if l.window && l.known && now.After(l.end) && end.Sub(l.end) < l.longest/2-resetError {
			l.window, l.sliding = false, true
		}
		if l.sliding {
			l.rate, l.tight = l.capacity/l.longest.Seconds(), true
		}
	}

	bucket := !l.window && l.rate > 0
	if l.known && (bucket || l.window && same) {
		used := l.remaining - t.Remaining
		if bucket {
			used += l.rate * now.Sub(l.told).Seconds()
		}
		const memory = 2 * few
		l.used, l.answers = l.used+used, l.answers+1
		if l.answers > memory {
			l.used, l.answers = l.used*memory/l.answers, memory
		}
	}

	l.known, l.remaining, l.capacity, l.told = true, t.Remaining, t.Capacity, now
	l.tight = l.tight || denied || t.Remaining-float64(flying) < min(few, t.Capacity/2)
	if t.Reset > 0 {
		l.end = end
		if t.Remaining-float64(flying) < 1 && !bucket { // those on their way take the rest
			l.hold = latest(l.hold, now.Add(min(t.Reset, maxHold)))
		}
	}
}

// classify finds out whether the limit is a bucket: there is a rate by which each reset is the time until it is
// full or, where the rate is told, until the next unit.
func (l *limit) classify(t retryafter.Limit) {
	reset, used := t.Reset.Seconds(), t.Capacity-t.Remaining
	if t.Rate > 0 {
		l.rate = t.Rate
	}
	if l.window || l.sliding || t.Rate > 0 && reset <= 1/t.Rate+resetError.Seconds() {
		return
	}

	l.low = max(l.low, (used-1)/reset)
	if reset > resetError.Seconds() {
		l.high = min(l.high, max(used, 1)/(reset-resetError.Seconds()))
	}
	switch {
	case t.Rate > 0:
		l.window = t.Rate < 0.99*l.low || t.Rate > 1.01*l.high
	case used > 0:
		l.window = l.low > l.high
		l.rate = min(max(used/reset, l.low), l.high)
	}
}

// toldPace is the pace of the fields, in requests a second.
func (l *limit) toldPace(now time.Time) float64 {
	went := math.Pow(max(l.used/max(l.answers, 1), 1), equal)

	switch left := l.end.Sub(now).Seconds(); {
	case !l.known:
	case l.window && left > 0:
		return max((l.remaining-l.spare+1)/went, 1) / l.end.Sub(l.sent).Seconds()
	case !l.window && l.rate > 0 && l.tight:
		reserve := min(max(l.capacity/2, 1), maxReserve)
		fill := (l.remaining - reserve) / reserve
		if l.sliding {
			fill = min(fill, 1)
		}
		return l.rate * math.Exp(fill) / went
	}
	return math.Inf(1)
}
