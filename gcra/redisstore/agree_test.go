package redisstore_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
)

// Under any sequence of calls, also with limits that change, a real Redis and
// Memory give the same answer as the model, to the tick.
func TestStoresAgree(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client)
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SliceOfN(gcratest.AnyLimit(), 1, 3).Draw(t, "limits")
		l, redis := gcratest.NewModel(), newStore(client)
		now := time.Unix(1_800_000_000, 0)
		memory := &gcra.Memory{Now: func() time.Time { return now }}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			d := gcratest.Pause(t, limits[0])
			l.Now += int64(d / tick)
			now = now.Add(d)
			server.advance(d)
			charges := gcratest.AnyAdmission(t, limits)
			refund := rapid.IntRange(0, 5).Draw(t, "refund") == 0
			want := slices.Clone(charges)
			if _, err := gcratest.TakeOrRefund(t.Context(), l, want, refund); err != nil {
				t.Fatal(err)
			}
			for name, store := range map[string]gcra.Store{"Memory": memory, "Redis": redis} {
				got := slices.Clone(charges)
				allowed, err := gcratest.TakeOrRefund(t.Context(), store, got, refund)
				if err != nil || allowed != gcratest.Passed(want) {
					t.Fatalf("%s: %+v: got %v, %v; want %v, nil", name, charges, allowed, err, gcratest.Passed(want))
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
