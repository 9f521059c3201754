package main

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// The charts are SVG written by hand: they follow the reader's light or dark
// scheme by a style sheet, which plotting libraries do not.

// style has a rule for each role. Ours stands out; commands, which limit
// nothing, are dashed or pale.
const style = `
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.quiet { fill: #59636e }
.ground { fill: #ffffff }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.line { fill: none; stroke-width: 2; stroke-linejoin: round }
.ours { stroke-width: 3.5 }
.command { stroke-dasharray: 5 4 }
.name { font-weight: 600 }
%s
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
.quiet { fill: #9198a1 }
.ground { fill: #0d1117 }
.grid { stroke: #3d444d }
%s
}
`

// colours are those of the contestants, on light and on dark ground.
var colours = []struct{ light, dark string }{
	{"#0969da", "#4493f8"}, // ours
	{"#bc4c00", "#f0883e"},
	{"#1a7f37", "#3fb950"},
	{"#8250df", "#ab7df8"},
	{"#bf3989", "#db61a2"},
	{"#7d4e00", "#d29922"},
	{"#57606a", "#9ea7b3"},
	{"#0a7f86", "#39c5cf"},
	{"#953800", "#ffa657"},
	{"#116329", "#7ee787"},
	{"#424a53", "#c9d1d9"},
	{"#cf222e", "#ff7b72"},
	{"#a40e26", "#ffa198"},
	{"#5e8c00", "#a5d64c"},
}

// svg is a chart being written.
type svg struct {
	strings.Builder
	width, height int
}

func newSVG(width, height int, title, subtitle string) *svg {
	s := &svg{width: width, height: height}
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`,
		width, height, width, height, escaped(title))
	var light, dark strings.Builder
	for i, c := range colours {
		fmt.Fprintf(&light, ".s%d { stroke: %s } .f%d { fill: %s }\n", i, c.light, i, c.light)
		fmt.Fprintf(&dark, ".s%d { stroke: %s } .f%d { fill: %s }\n", i, c.dark, i, c.dark)
	}
	fmt.Fprintf(s, "\n<style>"+style+"</style>\n", light.String(), dark.String())
	fmt.Fprintf(s, `<rect class="ground" width="%d" height="%d" rx="6"/>`+"\n", width, height)
	s.text(24, 32, "title", "start", title)
	s.text(24, 53, "quiet", "start", subtitle)
	return s
}

func (s *svg) text(x, y float64, class, anchor, text string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`+"\n", x, y, class, anchor, escaped(text))
}

func (s *svg) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(s, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`+"\n", x1, y1, x2, y2, class)
}

func (s *svg) end() string {
	s.WriteString("</svg>\n")
	return s.String()
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder does not fail
	return b.String()
}

// curve is a contestant in a chart over callers.
type curve struct {
	name    string
	command bool
	colour  int
	values  []float64
}

// colourOrder are the contestants on Redis, in the order of colours.
var colourOrder = []string{ours, redisRate, throttledIn, ululeIn, rueidisGCRA, rueidisSet, goRedisSet, goRedisPing,
	redisRateAP, goRedisSetAP, floorScript, nativeGCRA, nativeGoGCRA, decidingScript}

// colourOf gives a contestant on Redis the same colour in every chart.
func colourOf(name string) int { return max(slices.Index(colourOrder, name), 0) }

// speedChart draws checks a second over callers.
func (r *results) speedChart() string {
	ns := slices.Sorted(maps.Keys(r.callers))
	values := map[string][]float64{}
	for _, n := range ns {
		for name, v := range r.callers[n].of(sample.perSecond) {
			values[name] = append(values[name], median(v))
		}
	}
	var curves []curve
	for name, v := range values {
		curves = append(curves, curve{name, isCommand(name), colourOf(name), v})
	}
	slices.SortFunc(curves, func(a, b curve) int { return cmp.Compare(a.name, b.name) })
	return lineChart("Checks a second on one Redis, by callers at once",
		"More is better. Dashed: plain commands, which decide nothing. Client and Redis share the cores.", ns, curves)
}

func lineChart(title, subtitle string, xs []int, curves []curve) string {
	const (
		width, height            = 860, 480
		left, right, top, bottom = 70, 200, 80, 50
	)
	s := newSVG(width, height, title, subtitle)
	most := 0.0
	for _, c := range curves {
		most = max(most, slices.Max(append(c.values, 0)))
	}
	step := niceStep(most / 5)
	ceiling := max(math.Ceil(most/step)*step, step)
	px := func(i int) float64 {
		return left + float64(width-left-right)*float64(i)/float64(max(len(xs)-1, 1))
	}
	py := func(v float64) float64 { return top + float64(height-top-bottom)*(1-v/ceiling) }
	for v := 0.0; v <= ceiling+step/2; v += step {
		s.line(left, py(v), width-right, py(v), "grid")
		s.text(left-10, py(v)+4, "quiet", "end", thousands(int64(v)))
	}
	for i, x := range xs {
		s.text(px(i), height-bottom+22, "quiet", "middle", fmt.Sprint(x))
	}
	s.text(left+float64(width-left-right)/2, height-bottom+42, "quiet", "middle", "callers")
	// Ours is drawn last, on top.
	slices.SortStableFunc(curves, func(a, b curve) int { return cmp.Compare(order(a), order(b)) })
	for _, c := range curves {
		class := fmt.Sprintf("line s%d", c.colour)
		if c.command {
			class += " command"
		}
		if c.name == ours {
			class += " ours"
		}
		var points []string
		for i, v := range c.values {
			points = append(points, fmt.Sprintf("%.1f,%.1f", px(i), py(v)))
		}
		fmt.Fprintf(s, `<polyline class="%s" points="%s"/>`+"\n", class, strings.Join(points, " "))
	}
	for _, l := range labels(curves, py) {
		class := fmt.Sprintf("f%d", l.colour)
		if l.name == ours {
			class += " name"
		}
		s.text(width-right+10, l.y+4, class, "start", l.name)
	}
	return s.end()
}

func order(c curve) int {
	switch {
	case c.name == ours:
		return 2
	case c.command:
		return 0
	}
	return 1
}

// label is a curve's name beside its end.
type label struct {
	name   string
	colour int
	y      float64
}

// labels places the names beside the ends of the curves, apart from each other.
func labels(curves []curve, py func(float64) float64) []label {
	const apart = 17
	var out []label
	for _, c := range curves {
		if len(c.values) > 0 {
			out = append(out, label{c.name, c.colour, py(c.values[len(c.values)-1])})
		}
	}
	slices.SortFunc(out, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	// Upwards from the lowest, so that none falls below the axis.
	floor := py(0)
	for i := len(out) - 1; i >= 0; i-- {
		out[i].y = min(out[i].y, floor)
		floor = out[i].y - apart
	}
	return out
}

// niceStep is the step of a scale: 1, 2 or 5 times a power of ten.
func niceStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*p {
			return m * p
		}
	}
	return 10 * p
}

// cpuChart draws what a check costs Redis, by contestant, with the most callers.
func (r *results) cpuChart() string {
	ns := slices.Sorted(maps.Keys(r.callers))
	n := ns[len(ns)-1]
	cpu := r.callers[n].of(sample.cpuMicros)
	var bars []bar
	for _, name := range sortedBy(cpu, false) {
		bars = append(bars, bar{name, isCommand(name), colourOf(name), median(cpu[name])})
	}
	return barChart(fmt.Sprintf("CPU time of Redis for a check, %d callers", n),
		"Microseconds; less is better. Pale: plain commands, which decide nothing.", bars)
}

// bar is a contestant in a chart of bars.
type bar struct {
	name    string
	command bool
	colour  int
	value   float64
}

func barChart(title, subtitle string, bars []bar) string {
	const width, left, right, top, each = 860, 190, 80, 76, 34
	s := newSVG(width, top+each*len(bars)+20, title, subtitle)
	most := 0.0
	for _, b := range bars {
		most = max(most, b.value)
	}
	for i, b := range bars {
		y := float64(top + each*i)
		w := 0.0
		if most > 0 {
			w = float64(width-left-right) * b.value / most
		}
		class := ""
		if b.name == ours {
			class = "name"
		}
		opacity := "1"
		if b.command {
			opacity = "0.45"
		}
		s.text(left-12, y+17, class, "end", b.name)
		fmt.Fprintf(s, `<rect x="%d" y="%.1f" width="%.1f" height="24" rx="3" class="f%d" opacity="%s"/>`+"\n", left, y, w, b.colour, opacity)
		s.text(left+w+8, y+17, class, "start", fmt.Sprintf("%.1f", b.value))
	}
	return s.end()
}
