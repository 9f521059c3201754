package main

import (
	"strings"
	"testing"
)

func TestFigures(t *testing.T) {
	for _, tt := range []struct {
		v    float64
		unit string
		want string
	}{
		{1.149, times, "1.15x"}, {65432.1, perSecond, "65,432/s"}, {98.4, nanos, "98 ns"}, {45_678, nanos, "45.7 us"},
		{3.456, micros, "3.46 us"}, {1234567, octets, "1,234,567 B"}, {0, allocs, "0 allocs"}, {3.6, allocs, "3.6 allocs"}, {999.06, millis, "999.1 ms"}, {-1234, nanos, "-1,234 ns"},
	} {
		if got := figure(tt.v, tt.unit); got != tt.want {
			t.Errorf("figure(%v, %q) is %q; want %q", tt.v, tt.unit, got, tt.want)
		}
	}
}

func TestPrintRows(t *testing.T) {
	var b strings.Builder
	printRows(&b, []row{
		{"a row", "1 ns", "2 ns peer", "0.50x", "0.40x to 0.60x", "<= 0.80x", true, ""},
		{"a longer row", "12,345 ns", "-", "-", "-", "<= 8 ns", false, "It is slow."},
	})
	want := "row           ours       theirs     ratio  spread          target\n" +
		"a row         1 ns       2 ns peer  0.50x  0.40x to 0.60x  <= 0.80x  ok\n" +
		"a longer row  12,345 ns  -          -      -               <= 8 ns   short\n" +
		"\na longer row is short:\nIt is slow.\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
