package main

import (
	"encoding/xml"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestNiceStep(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 0.9: 1, 1: 1, 1.1: 2, 3: 5, 7: 10, 43_000: 50_000} {
		if got := niceStep(v); got != want {
			t.Errorf("niceStep(%v) is %v; want %v", v, got, want)
		}
	}
}

func TestLabels(t *testing.T) {
	curves := []curve{{name: "a", values: []float64{1}}, {name: "b", values: []float64{1.1}}, {name: "c", values: []float64{90}}}
	got := labels(curves, func(v float64) float64 { return 400 - v })
	for i := 1; i < len(got); i++ {
		if got[i].y-got[i-1].y < 16.9 {
			t.Errorf("%q at %.0f and %q at %.0f are too close", got[i-1].name, got[i-1].y, got[i].name, got[i].y)
		}
	}
	if last := got[len(got)-1]; last.name != "a" || last.y > 400 {
		t.Errorf("lowest is %q at %.0f; want a at 400 or above", last.name, last.y)
	}
}

// Each contestant on Redis has a colour of its own.
func TestColours(t *testing.T) {
	cs, err := build(testRedis(t), tight, slices.Concat(limitersOnRedis, plainCommands, []builder{newNativeGCRA, newNativeGoGCRA})...)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(cs)
	with := map[int]string{}
	for _, c := range cs {
		n := colourOf(c.name)
		if other, taken := with[n]; taken || n >= len(colours) {
			t.Errorf("%s has colour %d of %d, as %q", c.name, n, len(colours), other)
		}
		with[n] = c.name
	}
}

func TestChartsEscape(t *testing.T) {
	chart := barChart("a < b & c", "", []bar{{name: `<script>"`, value: 1}, {name: "none", value: 0}})
	wellFormed(t, "bars", []byte(chart))
	wellFormed(t, "lines", []byte(lineChart("a < b", "", []int{1}, []curve{{name: "x", values: []float64{0}}})))
}

func wellFormed(t *testing.T, name string, svg []byte) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(string(svg)))
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
	}
}
