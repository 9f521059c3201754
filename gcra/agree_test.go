package gcra_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Whatever comes in whatever order, also under limits that change, a real Redis
// and Memory give the same answer, which is the law's, to the tick.
func TestStoresAgree(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client)
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SliceOfN(anyLimit(), 1, 3).Draw(t, "limits")
		l, memory, redis := newLaw(), newBench(), newStore(client)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			d := pause(t, limits[0])
			l.now += int64(d / tick)
			memory.advance(d)
			server.advance(d)
			charges := anyAdmission(t, limits)
			refund := rapid.IntRange(0, 5).Draw(t, "refund") == 0
			want := slices.Clone(charges)
			l.apply(want, refund)
			for name, store := range map[string]gcra.Store{"Memory": memory, "Redis": redis} {
				got := slices.Clone(charges)
				allowed, err := takeOrRefund(t.Context(), store, got, refund)
				if err != nil || allowed != passed(want) {
					t.Fatalf("%s: %+v: got %v, %v; want %v, nil", name, charges, allowed, err, passed(want))
				}
				for i := range got {
					if got[i].Result != want[i].Result {
						t.Fatalf("%s: charge %d of %d, refund %v, %+v:\ngot  %+v\nwant %+v", name, i, len(got), refund, charges[i], got[i].Result, want[i].Result)
					}
				}
			}
		}
	})
}
