package storetest

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// A reset fills a bucket, also one with a queue of MaxDelay, and a peek changes
// nothing.
func resets(t *testing.T, b Backend) {
	charge := gcra.Charge{Subject: "s", Policy: "p", Limit: gcra.PerMinute(3), Cost: 1, MaxDelay: 10 * time.Minute, MaxWait: 10 * time.Minute}
	if b.Algorithm != GCRA && b.Algorithm != Sliding {
		t.Skip("the store may have no queue")
	}

	take := func() gcra.Result {
		r, err := gcra.Take(t.Context(), b.Store, charge)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}

	for range 20 {
		if r := take(); !r.Allowed {
			t.Fatalf("got %+v; want a place in the queue", r)
		}
	}

	for range 2 {
		if r, err := gcra.Peek(t.Context(), b.Store, charge); err != nil || !r.Allowed || r.Remaining != 0 || r.ResetAfter <= 0 {
			t.Errorf("a peek at the queue: got %+v, %v; want nothing remaining, and not full", r, err)
		}
	}

	if err := gcra.Reset(t.Context(), b.Store, charge); err != nil {
		t.Fatal(err)
	}
	if r, err := gcra.Peek(t.Context(), b.Store, charge); err != nil || r.Remaining != 3 || r.ResetAfter != 0 {
		t.Errorf("a peek after a reset: got %+v, %v; want 3 remaining", r, err)
	}

	if err := gcra.Reset(t.Context(), b.Store, gcra.Charge{Subject: "new", Policy: "p", Limit: charge.Limit}); err != nil {
		t.Errorf("a reset of a bucket that is full: got %v; want nil", err)
	}

	for i := range 4 {
		if r := take(); !r.Allowed || (r.Delay > 0) != (i == 3) {
			t.Errorf("call %d after a reset: got %+v; want a delay from the fourth on", i, r)
		}
	}
}
