package pacer

import (
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
	sliding   bool          // nor that of a fixed window
	end       time.Time     // of the window; zero if unknown
	longest   time.Duration // the longest reset, or the told window
	told      time.Time     // when
	tight     bool          // few units remained for the requests to come, or one was denied

	used, answers float64 // units that all clients used, and own answers meanwhile
}

// due is when a request may be sent: an interval after the last one, for it and each that waits before it.
func (l *limit) due(now time.Time, id int64, longest time.Duration) time.Time {
	pace := l.toldPace(now)
	if l.pace > 0 {
		pace = min(pace, l.pace)
	}
	interval := min(1/pace, maxHold.Seconds()) * float64(time.Second)
	if l.asks.n > 0 {
		interval = float64(l.asks.interval(max(firstAsk, time.Duration(min(interval, float64(longestAsk))))))
	}
	if longest > 0 {
		interval = min(interval, float64(longest))
	}

	before, _ := slices.BinarySearch(l.queue, id)
	interval *= l.jitter * float64(before+1)
	return latest(l.hold, l.sent.Add(time.Duration(min(interval, float64(maxHold)))))
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
		if l.window && l.known && (!same || t.Remaining > l.remaining) && end.Sub(l.end) < l.longest/2 {
			l.sliding = true
		}
	}

	bucket := !l.window && l.rate > 0
	if l.known && (bucket || l.window && same && !l.sliding) {
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
	if l.window || t.Rate > 0 && reset <= 1/t.Rate+resetError.Seconds() {
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
	case !l.known || l.sliding:
	case l.window && left > 0:
		return (l.remaining/went + 1) / left // the last at the reset
	case !l.window && l.rate > 0 && l.tight:
		reserve := min(max(l.capacity/2, 1), maxReserve)
		return l.rate * math.Exp((l.remaining-reserve)/reserve) / went
	}
	return math.Inf(1)
}
