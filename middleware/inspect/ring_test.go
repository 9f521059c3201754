package inspect

import (
	"testing"
)

func TestRing(t *testing.T) {
	var r ring
	if !r.add(1, allowed) || r.add(1, denied) {
		t.Error("want true for the first of a step only")
	}
	r.add(60, shadowDenied)

	got := r.recent(60)
	if got[0] != (counts{allowed: 1, denied: 1}) || got[59] != (counts{shadowDenied: 1}) {
		t.Errorf("got %v; want steps 1 to 60", got)
	}
	got = r.recent(61)
	if got[0] != (counts{}) || got[58] != (counts{shadowDenied: 1}) || got[59] != (counts{}) {
		t.Errorf("a step later: got %v; want steps 2 to 61", got)
	}

	// Step 61 reuses the slot of step 1, whose counts are gone.
	r.add(61, allowed)
	if got := r.recent(61)[59]; got != (counts{allowed: 1}) {
		t.Errorf("got %v; want one decision of step 61", got)
	}

	// A decision this late is not counted.
	r.add(1, denied)
	if got := r.recent(61)[59]; got != (counts{allowed: 1}) {
		t.Errorf("after a late one: got %v; want no change", got)
	}
}
