package storetest

import (
	"math"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// resets: refunding more units than there are empties a bucket whatever is in
// it, those who wait in the queue of MaxDelay included.
func resets(t *testing.T, b Backend) {
	charge := gcra.Charge{Subject: "s", Policy: "p", Limit: gcra.PerMinute(3), Cost: 1, MaxDelay: 10 * time.Minute}
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
	all := charge
	all.Cost = math.MaxInt64
	refund := []gcra.Charge{all}
	if err := b.Store.Refund(t.Context(), refund); err != nil || refund[0].Result.Remaining != 3 {
		t.Errorf("the refund of all: got %+v, %v; want 3 remaining", refund[0].Result, err)
	}
	for i := range 4 {
		if r := take(); !r.Allowed || (r.Delay > 0) != (i == 3) {
			t.Errorf("call %d after a reset: got %+v; want a delay from the fourth on", i, r)
		}
	}
}
