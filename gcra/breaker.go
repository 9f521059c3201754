package gcra

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// ErrUnavailable is wrapped by errors of calls that were not even tried, because
// Redis has failed several times in a row and is being left alone.
var ErrUnavailable = errors.New("unavailable after several failures")

// breaker keeps a lane off a server that has failed, so that its failure costs
// callers microseconds and not a Timeout each. After a rest one batch is sent
// as a probe; when it comes back, so does the lane.
type breaker struct {
	circuit *gobreaker.TwoStepCircuitBreaker[struct{}]
	resting atomic.Bool // not closed; saves healthy callers the circuit's lock
	health  health
}

const (
	// tripAfter is how many batches must fail in a row.
	tripAfter = 3

	// A rest lasts for minRest and up to twice that, chosen once by chance: the
	// probes of many processes do not come together, and each has found a Redis
	// that is back within two seconds.
	minRest = 500 * time.Millisecond
)

func newBreaker(r *Redis, server string) *breaker {
	b := &breaker{health: health{store: r, server: server}}
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Timeout:      minRest + rand.N(minRest),
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
		IsSuccessful: func(err error) bool { return !rediskit.Down(err) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			b.resting.Store(to != gobreaker.StateClosed)
		},
	})
	return b
}

// allow asks for leave to send. How it went goes to report, with what allow
// returned.
func (b *breaker) allow() (done func(error), err error) {
	if done, err = b.circuit.Allow(); err != nil {
		return nil, ErrUnavailable
	}
	return done, nil
}

func (b *breaker) report(done func(error), err error) {
	done(err)
	switch {
	case err != nil:
		b.health.failed(err, b.resting.Load())
	case !b.health.sound.Load() && !b.resting.Load():
		b.health.answered()
	}
}

func (b *breaker) state() BreakerState {
	switch b.circuit.State() {
	case gobreaker.StateOpen:
		return BreakerOpen
	case gobreaker.StateHalfOpen:
		return BreakerHalfOpen
	default:
		return BreakerClosed
	}
}

// refuses reports whether there is no point in boarding: the server rests, or
// a probe is under way.
func (b *breaker) refuses(underWay int) bool {
	if !b.resting.Load() {
		return false
	}
	switch b.state() {
	case BreakerOpen:
		return true
	case BreakerHalfOpen:
		return underWay > 0
	default:
		return false
	}
}
