package send

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The breaker opens after three failures in a row, and after a success they are counted anew. Failures of calls that were
// sent before the last one was known count once with it.
func TestBreakerCountsInARow(t *testing.T) {
	for _, tt := range []struct {
		calls string // a letter each: f for a failure, s for a success, m for one more failure of what was sent with the last
		opens bool
	}{
		{"fff", true},
		{"ffsff", false},
		{"ssffsffsff", false},
		{"ffsfff", true},
		{"sfsfsfff", true},
		{"fmmmmmfmmmm", false},
		{"fmmfmmf", true},
		{"fmsfmf", false},
	} {
		b, sent, now := newBreaker(), int64(0), int64(0)
		for i, call := range tt.calls {
			done, err := b.allow()
			if err != nil {
				t.Fatalf("%s: call %d: got %v; want it allowed", tt.calls, i, err)
			}

			result := errors.New("EOF")
			switch call {
			case 'f':
				sent = now
			case 's':
				sent, result = now, nil
			}
			now++
			b.count(done, result, sent, now)
		}

		if _, err := b.allow(); errors.Is(err, ErrUnavailable) != tt.opens {
			t.Errorf("%s: got %v; want it to open: %v", tt.calls, err, tt.opens)
		}
	}
}

// Calls from before the breaker opened neither close it nor take the place of its probe. A probe that has waited since then
// leaves its place to the next.
func TestLateResultsLeaveTheBreakerOpen(t *testing.T) {
	failure := errors.New("EOF")
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker()
		late, _ := b.allow()
		first, _ := b.allow()
		b.count(first, failure, 0, 1)
		counted, _ := b.allow()
		for now := int64(1); now < tripAfter; now++ {
			done, _ := b.allow()
			b.count(done, failure, now, now+1)
		}

		results := func() {
			for _, done := range []func(error){late, counted} {
				b.count(done, failure, 1, 9)
				b.count(done, nil, 1, 9)
			}
		}
		results()
		if _, err := b.allow(); !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v; want %v", err, ErrUnavailable)
		}

		time.Sleep(2 * minOpen)
		results()
		waited, _ := b.allow()
		b.count(waited, failure, 1, 9)

		time.Sleep(2 * minOpen)
		results()
		probe, err := b.allow()
		if err != nil {
			t.Fatalf("got %v; want a probe", err)
		}
		results()
		if _, err := b.allow(); !errors.Is(err, ErrUnavailable) {
			t.Errorf("beside the probe: got %v; want %v", err, ErrUnavailable)
		}
		b.count(probe, nil, 8, 9)
		if _, err := b.allow(); err != nil {
			t.Errorf("after the probe: got %v; want it closed", err)
		}
	})
}

// After a success that ends before an earlier failure does, the failure is forgotten with the next success.
func TestFailureAfterALaterSuccess(t *testing.T) {
	failure := errors.New("EOF")
	b := newBreaker()
	first, _ := b.allow()
	b.count(first, failure, 0, 1)
	slow, _ := b.allow()
	fast, _ := b.allow()
	b.count(fast, nil, 1, 2)
	b.count(slow, failure, 1, 3)

	next, _ := b.allow()
	b.count(next, nil, 3, 4)
	for now := range int64(2) {
		done, err := b.allow()
		if err != nil {
			t.Fatalf("got %v after fewer than three failures in a row", err)
		}
		b.count(done, failure, now+4, now+5)
	}
	if _, err := b.allow(); err != nil {
		t.Errorf("got %v after two failures in a row", err)
	}
}
