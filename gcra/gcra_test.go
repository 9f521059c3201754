package gcra_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/storetest"
)

// The oracle of the tests below keeps the contract itself, but for what is not
// the law's: errors, and callers at the same time.
func TestLawContract(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		switch name := t.Name()[len("TestLawContract/"):]; name {
		case "invalid_charges", "context_done", "exactly_the_burst_passes", "groups_under_contention", "bound_over_any_window":
			t.Skip("not the law's")
		}
		l := gcratest.NewModel()
		return storetest.Backend{Store: l, Advance: func(d time.Duration) { l.Now += int64(d / gcratest.Tick) }, Exact: true}
	})
}

// What the property tests draw.

// bench is a Memory on a clock of its own.
type bench struct {
	clock
	*gcra.Memory
}

func newBench() *bench {
	b := new(bench)
	b.Memory = &gcra.Memory{Now: b.now}
	return b
}

func (b *bench) take(t *rapid.T, c gcra.Charge) gcra.Result {
	r, err := gcra.Take(t.Context(), b, c)
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	return r
}

// Whatever comes in whatever order, also under limits that change, Memory
// answers as the law does.
func TestMemoryObeysTheLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SliceOfN(gcratest.AnyLimit(), 1, 3).Draw(t, "limits")
		l, m := gcratest.NewModel(), newBench()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			d := gcratest.Pause(t, limits[0])
			l.Now += int64(d / gcratest.Tick)
			m.advance(d)
			gcratest.CheckSame(t, l, m, gcratest.AnyAdmission(t, limits), rapid.IntRange(0, 5).Draw(t, "refund") == 0)
		}
	})
}
