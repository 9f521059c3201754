package histories

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Each checker finds the faults that it is meant to find. No window shows what makes the
// limiter stricter, such as a charge doubled.
func TestPlantedFaults(t *testing.T) {
	redistest.Need(t)
	type found int

	const (
		no found = iota
		perhaps
		yes
	)

	for _, tt := range []struct {
		fault                     string
		often                     bool
		order, window, settlement found
		server                    []string // the faults of the server, in all rounds but the first
		rounds                    int      // 0 means one of 150 calls a process, else rounds of 40
	}{
		{fault: "none"},
		{fault: dropped, order: yes, window: perhaps},
		{fault: dropped, often: true, order: yes, window: yes},
		{fault: doubled, order: yes},
		{fault: doubled, often: true, order: yes},
		{fault: refunded, order: yes, window: perhaps},
		{fault: refunded, often: true, order: yes, window: yes},
		{fault: resent, often: true, order: yes, server: []string{"drop"}, rounds: 9},
		{fault: unmentioned, order: yes, window: perhaps, server: []string{"flush"}, rounds: 3},
		{fault: forgotten, settlement: yes},
	} {
		name := tt.fault
		if tt.often {
			name += ", often"
		}

		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range amount(1, 10) {
				order := round{Calls: 150, Within: patience, Timeout: patience, Plant: &plant{Fault: tt.fault, Often: tt.often}}
				if tt.rounds > 0 {
					order.Calls = 40
				}
				rec := play(t, startSingle(t, false, tt.server...), max(tt.rounds, 1), order)
				if tt.fault == unmentioned {
					rec.operations = slices.DeleteFunc(rec.operations, func(o operation) bool { return o.Kind == erased })
				}
				text, over := unexplained(rec.operations, false), windows(rec.operations)
				_, unsettled := settlements(rec.operations)
				if strings.Contains(text, unknown) {
					t.Errorf("%s: %s", name, text)
				}

				for _, c := range []struct {
					checker string
					found   bool
					want    found
				}{{"order", text != "", tt.order}, {"windows", len(over) > 0, tt.window}, {"settlements", len(unsettled) > 0, tt.settlement}} {
					if c.want != perhaps && c.found != (c.want == yes) {
						t.Errorf("%s, planted %d times: found by the %s: %v", name, rec.planted, c.checker, c.found)
					}
				}
			}
		})
	}
}
