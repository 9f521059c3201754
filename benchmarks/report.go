package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// figure is a value as a reader wants it: three digits or so, and its unit.
func figure(v float64, unit string) string {
	switch unit {
	case times:
		return strconv.FormatFloat(v, 'f', 2, 64) + times
	case perSecond:
		return thousands(int64(math.Round(v))) + perSecond
	case allocs:
		return strconv.FormatFloat(v, 'f', -1, 64) + " " + unit
	case octets, commands:
		return thousands(int64(math.Round(v))) + " " + unit
	case millis:
		return strconv.FormatFloat(v, 'f', 1, 64) + " " + unit
	case micros:
		return strconv.FormatFloat(v, 'f', 2, 64) + " " + unit
	}
	if v >= 10_000 {
		return strconv.FormatFloat(v/1000, 'f', 1, 64) + " " + micros
	}
	return thousands(int64(math.Round(v))) + " " + unit
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// printRows prints the table with its columns aligned.
func printRows(w io.Writer, rows []row) {
	lines := [][]string{{"row", "ours", "theirs", "ratio", "spread", "target", ""}}
	for _, r := range rows {
		lines = append(lines, r.cells())
	}
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			fmt.Fprintf(&b, "%-*s  ", widths[i], cell)
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	for _, r := range rows {
		if r.why != "" {
			fmt.Fprintf(w, "\n%s is short:\n%s\n", r.name, r.why)
		}
	}
}

// The files that a whole run writes.
const (
	resultsFile = "RESULTS.md"
	speedChart  = "checks.svg"
	cpuChart    = "cpu.svg"
)

// report is what is written of all runs.
type report struct {
	settings
	results // with the rounds of all runs
	rows    []row
	others  float64 // cores that other programs used before the first run
	server  string  // its name and version
}

// write writes the results and the charts into a directory.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var text strings.Builder
	r.text(&text, machine(r.others), versions(r.server))
	for name, content := range map[string]string{
		resultsFile: text.String(),
		speedChart:  r.speedChart(),
		cpuChart:    r.cpuChart(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// text writes RESULTS.md.
func (r *report) text(w io.Writer, machine, versions []string) {
	fmt.Fprintf(w, "# Results\n\nWritten by `go -C benchmarks run .%s`, runs: %d, server: %s; do not edit.\n\n", r.flags(), r.runs, r.server)
	fmt.Fprint(w, "## Against the targets\n\n"+tableHeader)
	for _, row := range r.rows {
		fmt.Fprintln(w, row.markdown())
	}
	fmt.Fprintf(w, "\n%s\n", notes)
	if anyShort(r.rows) {
		fmt.Fprint(w, "Where the time goes in rows that are short:\n\n")
		for _, row := range r.rows {
			if row.why != "" {
				fmt.Fprintf(w, "- %s. %s\n", row.name, row.why)
			}
		}
		fmt.Fprintln(w)
	}
	r.reportRedis(w)
	r.reportMemory(w)
	r.reportHTTP(w)
	r.reportGrowth(w)
	fmt.Fprint(w, "## Machine\n\n")
	list(w, machine)
	fmt.Fprint(w, "\n## Versions\n\n")
	list(w, versions)
	fmt.Fprint(w, "\n", reproduce)
}

// markdown is the row in RESULTS.md, and in README.md.
func (r row) markdown() string { return "| " + strings.Join(r.cells(), " | ") + " |" }

// flags are those that change what is measured.
func (r *report) flags() string {
	s := ""
	if r.short {
		s += " -short"
	}
	if r.rounds > 0 {
		s += fmt.Sprintf(" -rounds %d", r.rounds)
	}
	return s
}

func list(w io.Writer, items []string) {
	for _, item := range items {
		fmt.Fprintf(w, "- %s\n", item)
	}
}

const notes = `The program makes several runs, one after the other. In a run, contestants take turns
in short slices (A B C, then C B A) in one process on one machine. A figure is the median
over the rounds of a run, and a ratio the median of the ratios within a round, so it may
differ a little from the ratio of the two medians beside it. A row is that of the median
run; its spread is the least and the greatest over the rounds of all runs. The tables
below are medians over the rounds of all runs. Every contestant had to keep a limit of 20
before it was measured (20 or 21 of 100 checks pass), and one denial or error during a
measurement ends the program.
`

const reproduce = `## How to reproduce

` + "```" + `
go -C benchmarks run .
` + "```" + `

It needs Go and redis-server, and a machine that does nothing else. ` + "`-h`" + ` tells
the rest.

## What was left out, and why

- Limiters for which a check is not one key and one limit: those that only wait
  (go.uber.org/ratelimit), that limit concurrency, or that need a server of their own.
- redis-cell: a Redis module that has to be compiled into the server's directory.
- rueidislimiter: its window is counted by INCR, and the one-key script here, on the
  same client, is a closer and faster contestant.
- The limiter of Echo v4 is measured but not compared with in the rows on middleware: it writes
  no headers. Tollbooth is measured as middleware only, for its limiter has no key
  without a request; it counts by address and header, as it takes no function for
  a key.
- TLS: it costs everybody the same.
`
