package send

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// ErrUnavailable is wrapped by the errors of requests that were not sent, as the breaker is open.
var ErrUnavailable = errors.New("unavailable after several failures")

// A breaker denies batches to a server that has failed, so that callers lose microseconds and not a Timeout each. When it
// has been open for a while, one batch is sent as a trial: if it is answered, the breaker closes, otherwise it opens again.
type breaker struct {
	lasts    int64 // how long it stays open
	failures int   // in a row; it is closed while they are fewer than tripAfter
	failed   int64 // when the last of them was known
	until    int64 // once it has opened: when a trial may be sent
	trying   bool  // a trial is in flight
}

const (
	// tripAfter is how many batches must fail in a row, each sent after the failure before it was known: many may be in
	// flight when Redis pauses once. The documentation names it and minOpen.
	tripAfter = 3

	// A breaker stays open for minOpen to twice minOpen, chosen once at random, so that the trials of many processes do not
	// come together. A process that has calls finds within twice minOpen and a Timeout that Redis answers again.
	minOpen = 500 * time.Millisecond
)

func newBreaker() breaker { return breaker{lasts: tat.Ticks(minOpen + rand.N(minOpen))} }

func (b *breaker) state(now int64) redisstats.BreakerState {
	switch {
	case b.failures < tripAfter:
		return redisstats.BreakerClosed
	case now < b.until:
		return redisstats.BreakerOpen
	}
	return redisstats.BreakerHalfOpen
}

// denies reports whether no batch may be sent: the breaker is open, or a trial is in flight.
func (b *breaker) denies(now int64) bool {
	return b.trying || b.state(now) == redisstats.BreakerOpen
}

// begin notes that a batch is sent, which is the trial unless the breaker is closed.
func (b *breaker) begin() { b.trying = b.failures >= tripAfter }

// count counts the result of a batch, unless it was sent before the breaker opened, or is a failure that counts once with the
// last one. sent is the time before the trip.
func (b *breaker) count(err error, sent, now int64) {
	if b.failures >= tripAfter && sent < b.until {
		return
	}

	b.trying = false
	switch {
	case !rediskit.Down(err):
		b.failures = 0
	case b.failures == 0, sent >= b.failed:
		b.failures++
		b.failed, b.until = now, now+b.lasts
	}
}
