package send

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// ErrUnavailable is wrapped by the errors of calls that were not sent, as the breaker is open.
var ErrUnavailable = errors.New("unavailable after several failures")

// A breaker denies batches to a server that has failed, so that callers lose microseconds and not a Timeout each. When it
// has been open for a while, one batch is sent as a probe; if that is answered, the breaker closes.
//
//  1. It is closed while fewer than tripAfter batches in a row have failed.
//  2. Otherwise one batch at a time is allowed, the probe, and none before probeAt.
//  3. While it is not closed, only the result of a probe counts: a batch that was sent before says nothing of the server now.
type breaker struct {
	clock   *buckets.Clock
	pause   int64        // before a probe, in ticks
	failed  atomic.Int64 // batches in a row
	probing atomic.Bool
	probeAt atomic.Int64
}

const (
	// tripAfter is how many batches must fail in a row. The documentation names it and minOpen.
	tripAfter = 3

	// A breaker stays open for minOpen to twice minOpen, chosen once at random, so that the probes of many processes do not
	// come together. A process that has calls finds within twice minOpen and a Timeout that Redis answers again.
	minOpen = 500 * time.Millisecond
)

func newBreaker(clock *buckets.Clock) *breaker {
	return &breaker{clock: clock, pause: tat.Ticks(minOpen + rand.N(minOpen))}
}

func (b *breaker) closed() bool { return b.failed.Load() < tripAfter }

// due reports whether the time of the next probe has come.
func (b *breaker) due() bool { return b.clock.Now() >= b.probeAt.Load() }

// denies reports whether a request need not be submitted: the breaker is open, or a probe is in flight.
func (b *breaker) denies() bool { return !b.closed() && (b.probing.Load() || !b.due()) }

// allow reports whether a batch may be sent, and whether it is the probe. If it may, count gets its error.
func (b *breaker) allow() (ok, probe bool) {
	if b.closed() {
		return true, false
	}
	probe = b.due() && b.probing.CompareAndSwap(false, true)
	return probe, probe
}

// count counts the result of a batch.
func (b *breaker) count(err error, probe bool) {
	switch {
	case !probe && !b.closed(): // invariant 3
		return
	case !rediskit.Down(err):
		b.failed.Store(0)
	case b.failed.Add(1) >= tripAfter:
		b.probeAt.Store(b.clock.Now() + b.pause)
	}

	if probe {
		b.probing.Store(false)
	}
}

func (b *breaker) state() gcra.BreakerState {
	switch {
	case b.closed():
		return gcra.BreakerClosed
	case b.probing.Load() || b.due():
		return gcra.BreakerHalfOpen
	}
	return gcra.BreakerOpen
}
