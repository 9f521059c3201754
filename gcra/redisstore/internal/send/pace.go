package send

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A pace says when a batch may leave, so that a request waits for a small part of a round trip while Redis has time to
// spare, and for the batches before it while Redis has none. All times are in ticks.
//
//  1. While fewer than minWindow batches are in flight, one may leave at once: Redis works on one, while the next is being
//     written and the one before read. This alone slows all servers down with Redis.
//  2. Beyond that, one may leave while fewer than window are in flight, and a part of 1/window of base has passed since the
//     last has left. So the batches of a full window are spread over a round trip.
//  3. base is the distance: the least time that an answer has taken in the last 10 to 20 seconds. window is at most most,
//     by the client's pool, and so small that leastGap lies between two batches: smaller batches cost more than the wait is
//     worth. Near Redis it is minWindow.
//  4. The brake: answers are judged after each round trip. If the fastest was slow, window shrinks by a quarter and one. If that has
//     not been so four times in a row, and requests have waited, it grows by one. After an error it is minWindow.
//
// The question is asked when a request arrives and when an answer does. No timer asks it.
type pace struct {
	window int   // at least minWindow
	most   int   // at least minWindow
	left   int64 // when the last batch left
	base   least

	judged  int64 // when answers were judged
	answers int   // since then
	fastest int64 // of them
	waited  bool  // a request, since then
	calm    int   // how often in a row they were not slow
}

const (
	minWindow = 2
	maxWindow = 16
	leastGap  = int64(125 * time.Microsecond / tat.Tick)

	fewest = 8 // answers that are judged: a pause of the machine makes some late, and not all
	grows  = 4 // times calm: were it as fast as it shrinks, many servers would swing together

	slow       = int64(250 * time.Microsecond / tat.Tick) // more than base, or a tenth of base
	remembered = int64(10 * time.Second / tat.Tick)
)

// may reports whether a batch may leave while so many are in flight.
func (p *pace) may(now int64, inFlight int) bool {
	if inFlight < minWindow || inFlight < p.window && now-p.left >= p.base.get()/int64(p.window) {
		return true
	}
	p.waited = true
	return false
}

// answered learns from an answer that has taken so long. If err is not nil there was none.
func (p *pace) answered(now, took int64, err error) {
	if err != nil {
		p.window, p.calm = minWindow, 0
		return
	}

	p.base.add(now, took)
	if p.answers == 0 || took < p.fastest {
		p.fastest = took
	}
	base := p.base.get()
	if p.answers++; p.answers < fewest || now-p.judged < base {
		return
	}

	// A pause of this machine makes some answers late; a queue in Redis makes all of them.
	if p.fastest > base+max(slow, base/10) {
		p.window, p.calm = p.window-p.window/4-1, 0
	} else if p.waited {
		p.calm++
	}
	if p.calm == grows {
		p.window, p.calm = p.window+1, 0
	}
	// The least time may have become shorter: then fewer batches fill it.
	p.window = max(minWindow, min(p.window, p.most, int(base/leastGap)))
	p.judged, p.answers, p.waited = now, 0, false
}

// A least is the least of the values of the last one to two times remembered, or 0.
type least struct {
	value, before int64 // of this time and of the one before
	since         int64 // when this time began
}

func (l *least) add(now, v int64) {
	if now-l.since >= remembered {
		l.before, l.value, l.since = l.value, 0, now
	}
	l.value = lesser(l.value, v)
}

func (l *least) get() int64 { return lesser(l.value, l.before) }

// lesser is the lesser of two values, of which 0 is none.
func lesser(a, b int64) int64 {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}
