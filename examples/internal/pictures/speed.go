package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const results = "benchmarks/results.txt"

// contestants are in the order of the picture.
var contestants = []struct{ row, name string }{
	{"ratelimit", "ratelimit"},
	{"redis_rate+AutoPipeline", "redis_rate, AutoPipeline"},
	{"redis_rate", "redis_rate"},
	{"ulule", "ulule/limiter"},
	{"throttled", "throttled"},
}

// panel is a bar for each contestant.
type panel struct {
	title  string
	values []float64
	text   func(float64) string
}

// drawSpeed draws the checks a second, and what they cost Redis, by the medians of the last benchmark.
func drawSpeed(*stage) error {
	tables, err := os.ReadFile(results)
	if err != nil {
		return err
	}

	checks, err := medians(string(tables), "sec/op")
	if err != nil {
		return err
	}
	for i, sec := range checks {
		checks[i] = 1 / sec
	}
	cpu, err := medians(string(tables), "redis-sec/op")
	if err != nil {
		return err
	}

	panels := []panel{
		{"checks a second (more is better)", checks, func(v float64) string { return fmt.Sprintf("%.0f,000", v/1000) }},
		{"CPU of Redis for a check (less is better)", cpu, func(v float64) string { return fmt.Sprintf("%.1f µs", v*1e6) }},
	}
	for _, t := range themes {
		if err := os.WriteFile(filepath.Join(folder, "speed-"+t.name+".svg"), barsOf(panels, t), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// medians are the contestants' seconds of a unit of the group Redis with 256 callers.
func medians(tables, unit string) ([]float64, error) {
	_, table, _ := strings.Cut(tables, "\n.name: Redis\n")
	table, _, _ = strings.Cut(table, "\n.name: ")
	_, table, _ = strings.Cut(table, "/callers: 256\n")
	table, _, _ = strings.Cut(table, "\n/callers: ")
	heading := regexp.MustCompile(`(?m)^ +│ +` + regexp.QuoteMeta(unit) + ` +│\n`).FindStringIndex(table)
	if heading == nil {
		return nil, fmt.Errorf("%s has no %s of Redis with 256 callers", results, unit)
	}
	table, _, _ = strings.Cut(table[heading[1]:], "\n\n")

	var all []float64
	for _, c := range contestants {
		row := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(c.row) + ` +([0-9.]+)([nµm]?) `).FindStringSubmatch(table)
		if row == nil {
			return nil, fmt.Errorf("%s has no %s of %s", results, unit, c.row)
		}
		v, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			return nil, err
		}
		size := map[string]time.Duration{"n": time.Nanosecond, "µ": time.Microsecond, "m": time.Millisecond, "": time.Second}[row[2]]
		all = append(all, v*size.Seconds())
	}
	return all, nil
}

// theme is the colours of a picture, as in the inspector.
type theme struct{ name, ink, soft, ours, theirs string }

var themes = []theme{
	{"light", "#191c20", "#59626e", "#1a56b0", "#b4bdc9"},
	{"dark", "#e7eaee", "#a3adb9", "#5f9ae6", "#4a5461"},
}

// barsOf draws panels side by side, with the names to the left.
func barsOf(panels []panel, t theme) []byte {
	const (
		width, names, gap = 830, 200, 30
		value             = 75 // at the end of the longest bar
		top, step, thick  = 40, 30, 20
	)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="t">
<title id="t">Redis with 256 callers: checks a second, and CPU of Redis for a check</title>
<style>text{font:14px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:%s}
.s{fill:%s}.b{font-weight:700}</style>
`, width, top+step*len(contestants), t.ink, t.soft)

	for i, c := range contestants {
		class := ""
		if i == 0 {
			class = ` class="b"`
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end"%s>%s</text>`+"\n",
			names-12, top+step*i+15, class, html.EscapeString(c.name))
	}

	room := (width - names - gap*(len(panels)-1)) / len(panels)
	for n, p := range panels {
		x, most := names+n*(room+gap), 0.0
		for _, v := range p.values {
			most = max(most, v)
		}
		fmt.Fprintf(&b, `<text x="%d" y="20" class="s">%s</text>`+"\n", x, p.title)
		for i, v := range p.values {
			class, fill := "", t.theirs
			if i == 0 {
				class, fill = ` class="b"`, t.ours
			}
			long := float64(room-value) * v / most
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" rx="3" fill="%s"/>`, x, top+step*i, long, thick, fill)
			fmt.Fprintf(&b, `<text x="%.1f" y="%d"%s>%s</text>`+"\n", float64(x)+long+8, top+step*i+15, class, p.text(v))
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
