package gcratest_test

import (
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/storetest"
)

// The model passes the contract, except for errors and concurrent callers.
func TestModelContract(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		switch name := t.Name()[len("TestModelContract/"):]; name {
		case "invalid_charges", "context_done", "exactly_the_burst_passes", "groups_under_contention", "bound_over_any_window":
			t.Skip("the model has neither errors nor locks")
		}
		m := gcratest.NewModel()
		return storetest.Backend{Store: m, Advance: m.Advance, Exact: true}
	})
}
