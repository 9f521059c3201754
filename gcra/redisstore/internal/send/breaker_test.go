package send

import (
	"errors"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// The breaker opens after three failures in a row, and after a success they are counted anew. Failures of batches that were
// sent before the last one was known count once with it.
func TestBreakerCountsInARow(t *testing.T) {
	for _, tt := range []struct {
		batches string // a letter each: f for a failure, s for a success, m for one more failure of what was sent with the last
		opens   bool
	}{
		{"fff", true},
		{"ffsff", false},
		{"ssffsffsff", false},
		{"ffsfff", true},
		{"sfsfsfff", true},
		{"fmmmmmfmmmm", false},
		{"fmmfmmf", true},
		{"fmsfmf", false},
		{"fsmsff", false},
	} {
		b, sent, now := newBreaker(), int64(0), int64(0)
		for i, batch := range tt.batches {
			if b.denies(now) {
				t.Fatalf("%s: batch %d is denied", tt.batches, i)
			}
			result := errors.New("EOF")
			switch batch {
			case 'f':
				sent = now
			case 's':
				sent, result = now, nil
			}
			b.begin()
			now++
			b.count(result, sent, now)
		}

		if b.denies(now) != tt.opens {
			t.Errorf("%s: got open %v; want %v", tt.batches, b.denies(now), tt.opens)
		}
	}
}

// Batches from before the breaker opened neither close it nor take the place of its trial. A trial that fails opens it again,
// one that is answered closes it.
func TestLateResultsLeaveTheBreakerOpen(t *testing.T) {
	b, failure := newBreaker(), errors.New("EOF")
	for now := range int64(tripAfter) {
		b.begin()
		b.count(failure, now, now+1)
	}

	now := int64(tripAfter)
	denied := func(when string) {
		t.Helper()
		for _, result := range []error{failure, nil} {
			b.count(result, 1, now)
		}
		if !b.denies(now) {
			t.Errorf("%s it lets batches pass", when)
		}
	}
	denied("open")
	for _, result := range []error{failure, nil} {
		now += tat.Ticks(2 * minOpen)
		b.count(nil, 1, now)
		if b.denies(now) {
			t.Fatal("half open, it lets no trial pass")
		}
		b.begin()
		denied("beside a trial")
		if b.count(result, now, now); result != nil {
			denied("after a trial that failed")
		}
	}
	if b.begin(); b.denies(now) {
		t.Error("after a trial that was answered it is not closed")
	}
}
