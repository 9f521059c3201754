package gcratest_test

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/storetest"
)

// The model passes the contract, except for errors and concurrent callers.
func TestModelContract(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		switch name := t.Name()[len("TestModelContract/"):]; name {
		case "invalid_charges", "invalid_quotas", "context_done", "exactly_the_burst_passes", "groups_under_contention", "bound_over_any_window":
			t.Skip("the model has neither errors nor locks")
		case "quotas_while_the_clock_goes_back":
			t.Skip("the model's clock does not go back")
		}
		m := gcratest.NewModel(time.Unix(1_800_000_000, 0))
		return storetest.Backend{Store: m, Advance: m.Advance, Exact: true}
	})
}
