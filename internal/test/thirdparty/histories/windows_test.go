package histories

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
)

// A flow is what a call has taken from a bucket, or given back if it is negative, in
// ticks. The time of the call is between two times.
type flow struct{ begin, end, units int64 }

// overflow looks at every window: what was taken by calls that lie in it, less what may
// have been given back in it, is at most room and what has refilled meanwhile. It returns
// what is wrong, or "". A loss of the bucket's state gives back all of it. Only a rate
// refills.
func overflow(flows []flow, room int64, refills bool) string {
	when := func(f flow) int64 { // by then it counts in a window that has begun before it
		if f.units < 0 {
			return f.begin
		}
		return f.end
	}

	flows = slices.Clone(flows)
	slices.SortFunc(flows, func(a, b flow) int {
		return cmp.Or(cmp.Compare(when(a), when(b)), cmp.Compare(a.units, b.units))
	})

	for _, first := range flows {
		if first.units < 0 {
			continue // no window has to begin with it
		}

		sum := int64(0)
		for _, f := range flows {
			if f.units > 0 && f.begin < first.begin || f.units < 0 && f.end < first.begin {
				continue
			}
			sum += f.units
			most := room
			if refills {
				most += f.end - first.begin
			}
			if f.units > 0 && sum > most {
				return fmt.Sprintf("%d ticks worth of units in the %d ticks since %d; want at most %d", sum, f.end-first.begin, first.begin, most)
			}
		}
	}

	return ""
}

// windows checks all buckets of a history, and returns what is wrong.
func windows(history []operation) (wrong []string) {
	type bucket struct{ subject, policy string }
	flows := map[bucket][]flow{}
	var losses []operation
	for _, o := range history {
		for _, c := range o.Charges {
			b, unit := bucket{c.Subject, c.Policy}, max(ticks(c.Limit.Interval()), 1)
			switch {
			case o.Kind == take && o.Allowed && c.Result.Taken > 0:
				flows[b] = append(flows[b], flow{o.Call, o.Return, c.Result.Taken * unit})
			case o.Kind == refund:
				flows[b] = append(flows[b], flow{o.Call, o.Return, -c.Cost * unit})
			}
		}

		if o.Kind == erased || o.Kind == rollback {
			losses = append(losses, o)
		}
	}

	for b, all := range flows {
		p := policyList[policyOf[b.policy]]
		room := (p.Limit.Capacity() + p.MaxDebt) * max(ticks(p.Limit.Interval()), 1)
		for _, o := range losses {
			if o.Charges[0].Subject == b.subject {
				all = append(all, flow{o.Call, o.Return, -room})
			}
		}

		if text := overflow(all, room, !p.Limit.IsQuota()); text != "" {
			wrong = append(wrong, fmt.Sprintf("%s, %s: %s", b.subject, b.policy, text))
		}
	}

	return wrong
}

// The bucket holds 10 ticks worth of units.
func TestOverflow(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flows []flow
		over  bool
	}{
		{"a burst", []flow{{0, 0, 6}, {0, 0, 4}}, false},
		{"more than a burst", []flow{{0, 0, 6}, {0, 0, 5}}, true},
		{"what refills", []flow{{0, 0, 10}, {3, 3, 3}, {5, 5, 2}}, false},
		{"more than refills", []flow{{0, 0, 10}, {3, 3, 3}, {5, 5, 3}}, true},
		{"too much in a later window", []flow{{0, 0, 1}, {100, 100, 10}, {103, 103, 4}}, true},
		{"calls that may have been further apart", []flow{{0, 2, 10}, {1, 5, 5}}, false},
		{"a call that may be outside the window", []flow{{0, 50, 10}, {20, 20, 10}, {30, 30, 10}}, false},
		{"a refund in the window", []flow{{0, 0, 10}, {1, 1, -3}, {2, 2, 5}}, false},
		{"a refund that may be in the window", []flow{{0, 9, -3}, {5, 5, 10}, {6, 6, 4}}, false},
		{"a refund before the window", []flow{{0, 4, -3}, {5, 5, 10}, {6, 6, 4}}, true},
		{"a refund after the window", []flow{{5, 5, 10}, {6, 6, 4}, {7, 9, -3}}, true},
		{"a loss of the state", []flow{{0, 0, 10}, {1, 2, -10}, {3, 3, 10}}, false},
	} {
		if text := overflow(tt.flows, 10, true); (text != "") != tt.over {
			t.Errorf("%s: got %q", tt.name, text)
		}
	}

	if text := overflow([]flow{{0, 0, 10}, {1000, 1000, 1}}, 10, false); text == "" {
		t.Error("a quota refills")
	}
}
