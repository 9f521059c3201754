package send

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
)

var errLost = errors.New("EOF")

// The breaker opens after three failures in a row, and after a success they are counted anew.
func TestBreakerCountsInARow(t *testing.T) {
	for _, tt := range []struct {
		calls string // a letter each: f for a failure, s for a success
		opens bool
	}{
		{"fff", true},
		{"ffsff", false},
		{"ssffsffsff", false},
		{"ffsfff", true},
		{"sfsfsfff", true},
	} {
		b := newBreaker(buckets.NewClock(nil))
		for i, call := range tt.calls {
			ok, probe := b.allow()
			if !ok || probe {
				t.Fatalf("%s: call %d: got %v and probe %v; want it allowed, and no probe", tt.calls, i, ok, probe)
			}
			if call == 'f' {
				b.count(errLost, false)
			} else {
				b.count(nil, false)
			}
		}
		if ok, _ := b.allow(); ok == tt.opens {
			t.Errorf("%s: got allowed %v; want that it opens: %v", tt.calls, ok, tt.opens)
		}
	}
}

// While the breaker is open, one batch after the other is a probe, each after a pause. The first that is answered closes it.
func TestBreakerProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(buckets.NewClock(nil))
		for range tripAfter {
			b.count(errLost, false)
		}

		for range 3 {
			if ok, _ := b.allow(); ok || !b.denies() || b.state() != gcra.BreakerOpen {
				t.Fatalf("open: got allowed %v, denied %v, state %v; want that it denies", ok, b.denies(), b.state())
			}
			time.Sleep(2 * minOpen)
			if b.denies() || b.state() != gcra.BreakerHalfOpen {
				t.Fatalf("after the pause: got denied %v, state %v; want a probe", b.denies(), b.state())
			}
			if ok, probe := b.allow(); !ok || !probe {
				t.Fatalf("after the pause: got %v and probe %v; want a probe", ok, probe)
			}
			if ok, _ := b.allow(); ok || !b.denies() || b.state() != gcra.BreakerHalfOpen {
				t.Fatalf("during the probe: got allowed %v, denied %v, state %v; want one probe", ok, b.denies(), b.state())
			}
			b.count(errLost, true)
		}

		time.Sleep(2 * minOpen)
		b.allow()
		b.count(nil, true)
		if ok, probe := b.allow(); !ok || probe || b.denies() || b.state() != gcra.BreakerClosed {
			t.Errorf("after a probe that was answered: got allowed %v, probe %v, denied %v, state %v; want it closed", ok, probe, b.denies(), b.state())
		}
	})
}

// Calls from before the breaker opened do not change it: one that succeeds late does not close it, and one that fails late
// is no failure of the probe.
func TestLateResultsLeaveTheBreakerOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(buckets.NewClock(nil))
		for range tripAfter {
			b.count(errLost, false)
		}
		b.count(nil, false)
		if ok, _ := b.allow(); ok {
			t.Error("after a late success: got a call allowed; want none")
		}

		time.Sleep(2 * minOpen)
		b.allow()
		b.count(errLost, false)
		if ok, _ := b.allow(); ok {
			t.Error("after a late failure: got a second probe; want one")
		}
	})
}

// After a success that ends before an earlier failure does, the failure is forgotten with the next success.
func TestFailureAfterALaterSuccess(t *testing.T) {
	b := newBreaker(buckets.NewClock(nil))
	for _, err := range []error{errLost, nil, errLost, nil, errLost, errLost} {
		if ok, _ := b.allow(); !ok {
			t.Fatal("got no call allowed after fewer than three failures in a row")
		}
		b.count(err, false)
	}
	if ok, _ := b.allow(); !ok {
		t.Error("got no call allowed after two failures in a row")
	}
}
