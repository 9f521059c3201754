package window

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// simple looks at every window.
func simple(calls []Call, limit gcra.Limit) float64 {
	worst := math.Inf(-1)
	for _, first := range calls {
		for _, last := range calls {
			if first.Units < 0 || last.Units < 0 || last.End < first.Begin {
				continue
			}
			sum := int64(0)
			for _, c := range calls {
				if c.Units < 0 && c.Begin <= last.End && c.End >= first.Begin || c.Units >= 0 && c.Begin >= first.Begin && c.End <= last.End {
					sum += c.Units
				}
			}
			refill := float64(last.End-first.Begin) * float64(limit.Count) / float64(limit.Per)
			worst = max(worst, float64(sum)-float64(limit.Burst)-refill)
		}
	}
	return worst
}

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

// The sweep finds what looking at every window finds.
func TestExcessIsThatOfTheWorstWindow(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		limit := gcra.PerSecond(1 + rnd.Int64N(20)).WithBurst(1 + rnd.Int64N(8))
		calls := make([]Call, 1+rnd.IntN(25))
		for i := range calls {
			begin := time.Duration(rnd.Int64N(2000)) * time.Millisecond
			calls[i] = Call{begin, begin + time.Duration(rnd.Int64N(300))*time.Millisecond, 1 + rnd.Int64N(4)}
			if rnd.IntN(5) == 0 {
				calls[i].Units *= -1
			}
		}
		got, want := Excess(calls, limit), simple(calls, limit)
		if math.Abs(got-want) > 1e-3 && !(math.IsInf(want, -1) && got < 0) {
			t.Fatalf("seed %d, %v, %v: got %v; want %v", seed, limit, fmt.Sprint(calls), got, want)
		}
	}
}
