package send

import (
	"errors"
	"testing"
)

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
		b := newBreaker()
		for i, call := range tt.calls {
			done, err := b.allow()
			if err != nil {
				t.Fatalf("%s: call %d: got %v; want it allowed", tt.calls, i, err)
			}

			if call == 'f' {
				b.count(done, errors.New("EOF"))
			} else {
				b.count(done, nil)
			}
		}

		if _, err := b.allow(); errors.Is(err, ErrUnavailable) != tt.opens {
			t.Errorf("%s: got %v; want it to open: %v", tt.calls, err, tt.opens)
		}
	}
}

// A call from before the breaker opened that succeeds late does not close it.
func TestLateSuccessLeavesTheBreakerOpen(t *testing.T) {
	b := newBreaker()
	late, _ := b.allow()
	first, _ := b.allow()
	b.count(first, errors.New("EOF"))
	counted, _ := b.allow()
	for range 2 {
		done, _ := b.allow()
		b.count(done, errors.New("EOF"))
	}

	b.count(late, nil)
	b.count(counted, nil)
	if _, err := b.allow(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v; want %v", err, ErrUnavailable)
	}
}

// After a success that ends before an earlier failure does, the failure is forgotten with the next success.
func TestFailureAfterALaterSuccess(t *testing.T) {
	failure := errors.New("EOF")
	b := newBreaker()
	first, _ := b.allow()
	b.count(first, failure)
	slow, _ := b.allow()
	fast, _ := b.allow()
	b.count(fast, nil)
	b.count(slow, failure)

	next, _ := b.allow()
	b.count(next, nil)
	for range 2 {
		done, err := b.allow()
		if err != nil {
			t.Fatalf("got %v after fewer than three failures in a row", err)
		}
		b.count(done, failure)
	}
	if _, err := b.allow(); err != nil {
		t.Errorf("got %v after two failures in a row", err)
	}
}
