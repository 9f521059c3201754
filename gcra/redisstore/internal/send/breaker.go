package send

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// ErrUnavailable is wrapped by the errors of calls that were not sent, as the breaker is open.
var ErrUnavailable = errors.New("unavailable after several failures")

// A breaker denies batches to a server that has failed, so that callers lose microseconds and not a Timeout each. When it
// has been open for a while, one batch is sent as a probe; if that is answered, the breaker closes.
type breaker struct {
	circuit   *gobreaker.TwoStepCircuitBreaker[struct{}]
	notClosed atomic.Bool // saves callers the circuit's lock while it is closed

	// While it is closed and nothing has failed, a success changes nothing and is not passed on, which saves the circuit's lock.
	mu      sync.Mutex  // held while the circuit gets a result, and failing and failed are set
	failing atomic.Bool // it has counted a failure since the last success
	failed  int64       // when it has counted the last failure
}

const (
	// tripAfter is how many batches must fail in a row, each sent after the failure before it was known: many may be in
	// flight when Redis pauses once. The documentation names it and minOpen.
	tripAfter = 3

	// A breaker stays open for minOpen to twice minOpen, chosen once at random, so that the probes of many processes do not
	// come together. A process that has calls finds within twice minOpen and a Timeout that Redis answers again.
	minOpen = 500 * time.Millisecond
)

func newBreaker() *breaker {
	b := new(breaker)
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Timeout:      minOpen + rand.N(minOpen),
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
		IsSuccessful: func(err error) bool { return !rediskit.Down(err) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			b.notClosed.Store(to != gobreaker.StateClosed)
		},
	})
	return b
}

// allow returns [ErrUnavailable] if no call may be made. Otherwise done is for count; it is nil if the circuit was not asked.
func (b *breaker) allow() (done func(error), err error) {
	if !b.failing.Load() && !b.notClosed.Load() {
		return nil, nil
	}
	if done, err = b.circuit.Allow(); err != nil {
		return nil, ErrUnavailable
	}
	return done, nil
}

// count counts the result of a call that was allowed, unless it is a failure that counts once with the last one, or is from
// before the breaker opened. sent is the time before the call.
func (b *breaker) count(done func(error), err error, sent, now int64) {
	if done == nil && !rediskit.Down(err) && !b.failing.Load() { // another call may have failed meanwhile
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	// Not of a probe, which may have waited since before the breaker opened: the circuit allows no other until it has its result.
	if rediskit.Down(err) && sent < b.failed && (done == nil || !b.notClosed.Load()) {
		return
	}
	if done == nil {
		var open error
		if done, open = b.circuit.Allow(); open != nil {
			return
		}
	}
	if rediskit.Down(err) {
		b.failed = now
	}
	done(err)
	b.failing.Store(b.circuit.Counts().ConsecutiveFailures > 0)
}

// denies reports whether a request need not be submitted: the breaker is open, or a probe is in flight.
func (b *breaker) denies(inFlight int) bool {
	if !b.notClosed.Load() {
		return false
	}
	state := b.circuit.State()
	return state == gobreaker.StateOpen || state == gobreaker.StateHalfOpen && inFlight > 0
}
