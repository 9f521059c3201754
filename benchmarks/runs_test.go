package main

import (
	"slices"
	"testing"
)

// The tables have the rounds of all runs.
func TestMerge(t *testing.T) {
	run := func(n int64) results {
		s := samples{ours: {{checks: n}}}
		return results{
			callers: map[int]samples{16: s}, cluster: s, gaps: []float64{float64(n)},
			denied: &denials{nanos: []float64{float64(n)}, count: n, commands: n},
			window: &windows{callers: map[int]samples{1: s}},
		}
	}
	one, more := run(7), results{} // of chosen rows only
	if all := merge([]results{run(5), run(6), one}); len(all.callers[16][ours]) != 3 || all.cluster[ours][0].checks != 5 ||
		len(all.window.callers[1][ours]) != 3 || !slices.Equal(all.gaps, []float64{5, 6, 7}) || all.denied.count != 18 || len(all.denied.nanos) != 3 {
		t.Errorf("got %+v; want the rounds of 5, 6 and 7", all)
	}
	if all := merge([]results{more, more}); all.denied != nil || all.window != nil {
		t.Errorf("got %+v; want nothing", all)
	}
}
