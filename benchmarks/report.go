package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
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
	case octets, allocs, commands:
		return thousands(int64(math.Round(v))) + " " + unit
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
	lines := [][]string{{"row", "ours", "theirs", "ratio", "target", ""}}
	for _, r := range rows {
		lines = append(lines, []string{r.name, r.ours, r.theirs, r.ratio, r.target, r.verdict()})
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
}

// The files that a whole run writes.
const (
	resultsFile = "RESULTS.md"
	speedChart  = "checks.svg"
	cpuChart    = "cpu.svg"
)

// write writes the results and the charts into a directory.
func (b *bench) write(ctx context.Context, dir string, rows []row) error {
	redisInfo, err := b.redis.info(ctx, "server")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var report strings.Builder
	b.report(&report, rows, machine(b.load), versions(field(redisInfo, "redis_version")))
	for name, content := range map[string]string{
		resultsFile: report.String(),
		speedChart:  b.speedChart(),
		cpuChart:    b.cpuChart(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
		b.progress("wrote %s", filepath.Join(dir, name))
	}
	return nil
}

// load is the number of processes that wanted a core over the last minute, or 0
// where that is not known.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	v, _ := strconv.ParseFloat(first, 64) // 0 when it is not known
	return v
}

// busy reports whether others use the machine so much that figures suffer.
func busy(load float64) bool { return load > 0.25*float64(runtime.NumCPU()) }

// machine describes what this runs on, without its name. load is that before
// the run.
func machine(load float64) []string {
	model := "unknown CPU"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	kernel := runtime.GOOS
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel += " " + strings.TrimSpace(string(release))
	}
	used := fmt.Sprintf("load average before the run: %.2f", load)
	if busy(load) {
		used += "; **others were using the machine, so do not quote these figures**"
	}
	return []string{
		fmt.Sprintf("%d cores (%s), shared by the clients and Redis", runtime.NumCPU(), model),
		kernel + ", " + runtime.GOARCH,
		used,
	}
}

// peers are the modules whose versions matter.
var peers = []string{
	"github.com/didip/tollbooth/v8",
	"github.com/gin-gonic/gin",
	"github.com/go-chi/httprate",
	"github.com/go-redis/redis_rate/v10",
	"github.com/labstack/echo/v4",
	"github.com/redis/go-redis/v9",
	"github.com/redis/rueidis",
	"github.com/sethvargo/go-limiter",
	"github.com/throttled/throttled/v2",
	"github.com/ulule/limiter/v3",
	"golang.org/x/time",
}

// versions are those of Go, Redis and the peers, as they were built in.
func versions(redis string) []string {
	out := []string{"Go " + strings.TrimPrefix(runtime.Version(), "go"), "Redis " + redis}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return out
	}
	for _, m := range info.Deps {
		if slices.Contains(peers, m.Path) {
			out = append(out, m.Path+" "+m.Version)
		}
	}
	return out
}

// report writes RESULTS.md.
func (b *bench) report(w io.Writer, rows []row, machine, versions []string) {
	fmt.Fprintf(w, "# Results\n\nWritten by `go -C benchmarks run .%s`; do not edit.\n\n", flagsOf(b))
	fmt.Fprint(w, "## Against the targets\n\n| row | ours | theirs | ratio | target | |\n|---|--:|--:|--:|--:|---|\n")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", r.name, r.ours, r.theirs, r.ratio, r.target, r.verdict())
	}
	fmt.Fprint(w, "\n", notes)
	b.reportRedis(w)
	b.reportMemory(w)
	b.reportHTTP(w)
	b.reportGrowth(w)
	fmt.Fprint(w, "## Machine\n\n")
	list(w, machine)
	fmt.Fprint(w, "\n## Versions\n\n")
	list(w, versions)
	fmt.Fprint(w, "\n", reproduce)
}

func flagsOf(b *bench) string {
	s := ""
	if b.short {
		s += " -short"
	}
	if b.rounds > 0 {
		s += fmt.Sprintf(" -rounds %d", b.rounds)
	}
	return s
}

func list(w io.Writer, items []string) {
	for _, item := range items {
		fmt.Fprintf(w, "- %s\n", item)
	}
}

const notes = `Contestants take turns in short slices (A B C, then C B A) in one process on one
machine, and each figure is the median over the rounds. A ratio is the median of
the ratios within a round, so it may differ a little from the ratio of the two
medians beside it. Every contestant had to keep a limit of 20 before it was measured
(20 or 21 of 100 checks pass), and one denial or error during a measurement ends
the run.

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
- Echo's own limiter is measured but not compared with in the rows on middleware: it writes no
  headers. Tollbooth is measured as middleware only, for its limiter has no key
  without a request; it counts by address and header, as it takes no function for
  a key.
- A cluster, and TLS: they cost everybody the same, and one machine is no place
  to measure them.
`

// sortedBy are the names by their median, the best first.
func sortedBy(s series, highest bool) []string {
	var names []string
	for name := range s {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		c := cmp.Compare(median(s[a]), median(s[b]))
		if highest {
			c = -c
		}
		return cmp.Or(c, cmp.Compare(a, b))
	})
	return names
}

func (b *bench) reportRedis(w io.Writer) {
	if len(b.callers) == 0 {
		return
	}
	fmt.Fprintf(w, "## Redis\n\n![Checks a second over callers](%s)\n\n![CPU of Redis for a check](%s)\n\n", speedChart, cpuChart)
	fmt.Fprintf(w, "Checks a second, %s keys in turn, by callers:\n\n", thousands(manyKeys))
	ns := slices.Sorted(keysOf(b.callers))
	last := ns[len(ns)-1]
	tableHead(w, "", ns)
	for _, name := range sortedBy(b.callers[last].of(sample.perSecond), true) {
		fmt.Fprintf(w, "| %s |", name)
		for _, n := range ns {
			fmt.Fprintf(w, " %s |", thousands(int64(median(b.callers[n].of(sample.perSecond)[name]))))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\nOurs, as a multiple of theirs:\n\n")
	tableHead(w, "", ns)
	for _, name := range sortedBy(b.callers[last].of(sample.perSecond), true) {
		if name == ours {
			continue
		}
		fmt.Fprintf(w, "| %s |", name)
		for _, n := range ns {
			s := b.callers[n].of(sample.perSecond)
			fmt.Fprintf(w, " %s |", figure(ratio(s[ours], s[name]), times))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\nCPU of Redis for a check, in microseconds, by callers:\n\n")
	tableHead(w, "", ns)
	for _, name := range sortedBy(b.callers[last].of(sample.cpuMicros), false) {
		fmt.Fprintf(w, "| %s |", name)
		for _, n := range ns {
			fmt.Fprintf(w, " %.2f |", median(b.callers[n].of(sample.cpuMicros)[name]))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	if len(b.hot) > 0 {
		fmt.Fprint(w, "Checks a second of one hot key, by callers; allocations of a check; bytes of a key in Redis:\n\n")
		fmt.Fprint(w, "| | 16 | 256 | allocations | bytes |\n|---|--:|--:|--:|--:|\n")
		for _, name := range sortedBy(b.hot[256].of(sample.perSecond), true) {
			size := "-"
			if n, ok := b.usage[name]; ok {
				size = figure(n, octets)
			}
			fmt.Fprintf(w, "| %s | %s | %s | %.0f | %s |\n", name,
				thousands(int64(median(b.hot[16].of(sample.perSecond)[name]))),
				thousands(int64(median(b.hot[256].of(sample.perSecond)[name]))), b.redisAll[name].allocs, size)
		}
		fmt.Fprintln(w)
	}
	if b.window != nil {
		b.window.report(w)
	}
	if b.denied != nil {
		fmt.Fprintf(w, "The denial cache denied %s checks in %s each, with %s to Redis.\n\n",
			thousands(b.denied.count), figure(median(b.denied.nanos), nanos), figure(float64(b.denied.commands), commands))
	}
}

func keysOf(m map[int]samples) func(func(int) bool) {
	return func(yield func(int) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func tableHead(w io.Writer, first string, columns []int) {
	fmt.Fprintf(w, "| %s |", first)
	for _, n := range columns {
		fmt.Fprintf(w, " %d |", n)
	}
	fmt.Fprint(w, "\n|---|"+strings.Repeat("--:|", len(columns))+"\n")
}

func (b *bench) reportMemory(w io.Writer) {
	if len(b.memory) == 0 {
		return
	}
	var at []setting
	for s := range b.memory {
		at = append(at, s)
	}
	slices.SortFunc(at, func(x, y setting) int {
		return cmp.Or(cmp.Compare(x.keys, y.keys), cmp.Compare(x.callers, y.callers))
	})
	fmt.Fprint(w, "## In memory\n\nNanoseconds of a check: the caller's CPU time on one core, and on all cores the time from one check\nto the next:\n\n|  |")
	for _, s := range at {
		fmt.Fprintf(w, " %v |", s)
	}
	fmt.Fprint(w, " allocations |\n|---|"+strings.Repeat("--:|", len(at)+1)+"\n")
	for _, name := range sortedBy(b.memoryTimes(at[0]), false) {
		fmt.Fprintf(w, "| %s |", name)
		for _, s := range at {
			fmt.Fprintf(w, " %.0f |", median(b.memoryTimes(s)[name]))
		}
		fmt.Fprintf(w, " %.0f |\n", b.memAll[name].allocs)
	}
	fmt.Fprintln(w)
}

func (b *bench) reportHTTP(w io.Writer) {
	if len(b.serve) == 0 {
		return
	}
	fmt.Fprint(w, "## Whole middleware\n\nWhat a limiter in memory adds to a call of a bare handler's ServeHTTP: nanoseconds of the caller's CPU\n"+
		"time, the same with collecting the garbage of it on other threads, allocations and their bytes; and\n"+
		"requests a second over loopback by ", keptAlive, " clients that keep their connections.\n")
	for _, framework := range []string{netHTTP, inGin, inEcho} {
		if len(b.serve[framework]) == 0 {
			continue
		}
		added, all := b.overheads(framework, sample.callerNanos)
		whole, _ := b.overheads(framework, sample.ownNanos)
		fmt.Fprintf(w, "\n| %s | ns | with garbage collection | allocations | bytes | requests/s over loopback |\n|---|--:|--:|--:|--:|--:|\n", framework)
		wire := b.wire[framework].of(sample.perSecond)
		for _, name := range []string{bare, bareMux} {
			if v, ok := wire[name]; ok {
				fmt.Fprintf(w, "| %s | | | | | %s |\n", name, thousands(int64(median(v))))
			}
		}
		for _, name := range sortedBy(added, false) {
			fmt.Fprintf(w, "| %s | %.0f | %.0f | %.0f | %s | %s |\n", name, median(added[name]), median(whole[name]), all[name].allocs,
				thousands(int64(all[name].bytes)), thousands(int64(median(wire[name]))))
		}
	}
	fmt.Fprintln(w)
}

func (b *bench) reportGrowth(w io.Writer) {
	if len(b.memUp) == 0 {
		return
	}
	fmt.Fprint(w, "## As keys grow\n\nOurs, with that many keys alive. In memory one caller asks at random.\n\n")
	fmt.Fprint(w, "| keys in memory | ns a check | bytes a key |\n|--:|--:|--:|\n")
	for _, g := range b.memUp {
		fmt.Fprintf(w, "| %s | %.0f | %s |\n", thousands(int64(g.keys)), g.nanos, g.size())
	}
	fmt.Fprint(w, "\n| keys in Redis | us a check, 256 callers | CPU of Redis, us a check | bytes a key |\n|--:|--:|--:|--:|\n")
	for _, g := range b.redisUp {
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %s |\n", thousands(int64(g.keys)), g.nanos/1e3, g.cpuMicros, g.size())
	}
	fmt.Fprintln(w)
}

// size is the bytes of a key, where there were enough keys to tell.
func (g growth) size() string {
	if g.keys < enoughKeys {
		return "-"
	}
	return fmt.Sprintf("%.0f", g.bytesPerKey)
}
