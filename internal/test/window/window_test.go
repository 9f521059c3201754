package window

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

func TestExcess(t *testing.T) {
	limit := gcra.PerSecond(10).WithBurst(5)
	ms := time.Millisecond
	for name, test := range map[string]struct {
		calls []Call
		want  float64
	}{
		"a burst":                        {slices.Repeat([]Call{{0, 0, 1}}, 5), 0},
		"one more":                       {slices.Repeat([]Call{{0, 0, 1}}, 6), 1},
		"one more, and its refill":       {append(slices.Repeat([]Call{{0, 0, 1}}, 5), Call{100 * ms, 100 * ms, 1}), 0},
		"that may have come 100 ms late": {append(slices.Repeat([]Call{{0, 0, 1}}, 5), Call{0, 100 * ms, 1}), 0},
		"a refund":                       {[]Call{{0, 0, 5}, {0, ms, -5}, {ms, ms, 5}}, -0.01},
		"a refund that comes too late":   {[]Call{{0, 0, 5}, {ms, ms, 5}, {2 * ms, 3 * ms, -5}}, 4.99},
		"a window after the refund":      {[]Call{{0, 0, 5}, {ms, ms, -5}, {2 * ms, 2 * ms, 7}}, 2},
	} {
		if got := Excess(test.calls, limit); math.Abs(got-test.want) > 1e-6 {
			t.Errorf("%s: got %v; want %v", name, got, test.want)
		}
	}

	quota := gcra.Quota(3, gcra.Daily)
	if got := Excess([]Call{{0, 0, 2}, {time.Hour, time.Hour, 2}}, quota); got != 1 {
		t.Errorf("4 of a quota of 3: got %v; want 1", got)
	}
}
