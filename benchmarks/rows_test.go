package main

import (
	"fmt"
	"testing"
)

func TestBounds(t *testing.T) {
	for _, tt := range []struct {
		b    bound
		v    float64
		want bool
	}{
		{atMost(1.15, times), 1.15, true}, {atMost(1.15, times), 1.16, false},
		{atLeast(5, times), 5, true}, {atLeast(5, times), 4.9, false}, {faster, 1, false}, {faster, 0.9, true},
	} {
		if got := tt.b.holds(tt.v); got != tt.want {
			t.Errorf("%v of %v is %v; want %v", tt.b, tt.v, got, tt.want)
		}
	}
	peerless := verdict{ours: 250, unit: nanos}
	if got := peerless.judged(); got != 250 {
		t.Errorf("judged is %v; want ours, 250", got)
	}
}

// A row is that of the median run, the worse one of two, and its spread is over the
// rounds of all runs.
func TestRows(t *testing.T) {
	run := func(least ...float64) results { return results{gaps: least} }
	gap := target{name: "gap", bound: atLeast(999, millis), measure: func(r *results) verdict { return alone(r.gaps, millis) },
		why: func(r *results) string { return fmt.Sprint(r.gaps) }}
	for _, tt := range []struct {
		runs              []results
		ours, spread, why string
	}{
		{[]results{run(1000)}, "1000.0 ms", "-", ""},
		{[]results{run(990), run(1002), run(1001)}, "1001.0 ms", "990.0 ms to 1002.0 ms", ""},
		{[]results{run(1002), run(998)}, "998.0 ms", "998.0 ms to 1002.0 ms", "[1002 998]"},
	} {
		r := gap.row(tt.runs)
		if r.ours != tt.ours || r.spread != tt.spread || r.why != tt.why || r.ok != (tt.why == "") {
			t.Errorf("%v: got %+v; want %+v", tt.runs, r, tt)
		}
	}
	one := target{name: "ratio", bound: atMost(0.5, times), measure: func(r *results) verdict {
		return against(series{ours: r.gaps, redisRate: {10, 10}}, redisRate, nanos)
	}}
	if r := one.row([]results{run(2, 4), run(6, 8), run(4, 6)}); r.ratio != "0.50x" || r.spread != "0.20x to 0.80x" || !r.ok {
		t.Errorf("got %+v; want a ratio of 0.50x from 0.20x to 0.80x", r)
	}
}
