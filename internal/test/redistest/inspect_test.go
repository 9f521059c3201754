package redistest_test

import (
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

func TestInspect(t *testing.T) {
	c := redistest.Start(t).Client()
	for _, key := range []string{"a:1", "a:2", "b:1"} {
		if err := c.Set(t.Context(), key, 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if keys, sets := redistest.Keys(t, c, "a:"), redistest.Calls(t, c, "set"); len(keys) != 2 || sets != 3 {
		t.Errorf("got keys %q, %d calls of SET; want 2 of a:, 3", keys, sets)
	}
	redistest.ResetStats(t, c)
	if sets := redistest.Calls(t, c, "set"); sets != 0 {
		t.Errorf("got %d calls of SET after the reset; want none", sets)
	}
}
