package gcratest_test

import (
	"testing"
	"time"

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
