package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

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

func (r *results) reportRedis(w io.Writer) {
	if len(r.callers) == 0 {
		return
	}
	fmt.Fprintf(w, "## Redis\n\n![Checks a second over callers](%s)\n\n![CPU of Redis for a check](%s)\n\n", speedChart, cpuChart)
	fmt.Fprintf(w, "Checks a second, %s keys in turn, by callers:\n\n", thousands(manyKeys))
	ns := slices.Sorted(maps.Keys(r.callers))
	last := ns[len(ns)-1]
	tableHead(w, ns)
	for _, name := range sortedBy(r.callers[last].of(sample.perSecond), true) {
		fmt.Fprintf(w, "| %s |", name)
		for _, n := range ns {
			fmt.Fprintf(w, " %s |", thousands(int64(median(r.callers[n].of(sample.perSecond)[name]))))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\nOurs, as a multiple of theirs:\n\n")
	tableHead(w, ns)
	for _, name := range sortedBy(r.callers[last].of(sample.perSecond), true) {
		if name == ours {
			continue
		}
		fmt.Fprintf(w, "| %s |", name)
		for _, n := range ns {
			s := r.callers[n].of(sample.perSecond)
			fmt.Fprintf(w, " %s |", figure(ratio(s[ours], s[name]), times))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\nCPU of Redis for a check, in microseconds, by callers:\n\n")
	tableHead(w, ns)
	for _, name := range sortedBy(r.callers[last].of(sample.cpuMicros), false) {
		fmt.Fprintf(w, "| %s |", name)
		for _, n := range ns {
			fmt.Fprintf(w, " %.2f |", median(r.callers[n].of(sample.cpuMicros)[name]))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	if len(r.hot) > 0 {
		fmt.Fprint(w, "Checks a second of one hot key, by callers; allocations of a check; bytes of a key in Redis:\n\n")
		fmt.Fprint(w, "| | 16 | 256 | allocations | bytes |\n|---|--:|--:|--:|--:|\n")
		for _, name := range sortedBy(r.hot[256].of(sample.perSecond), true) {
			size := "-"
			if n, ok := r.usage[name]; ok {
				size = figure(n, octets)
			}
			fmt.Fprintf(w, "| %s | %s | %s | %.0f | %s |\n", name,
				thousands(int64(median(r.hot[16].of(sample.perSecond)[name]))),
				thousands(int64(median(r.hot[256].of(sample.perSecond)[name]))), r.redisAll[name].allocs, size)
		}
		fmt.Fprintln(w)
	}
	if r.cluster != nil && r.ring != nil {
		fmt.Fprintf(w, "Several servers, %d callers; CPU of all servers, replicas too:\n\n", manyCallers)
		fmt.Fprint(w, "| | checks a second | CPU, us a check |\n|---|--:|--:|\n")
		reportServers(w, "", r.ring, ours, ours+onRing, ours+onRing+crowded)
		reportServers(w, " on a cluster of six", r.cluster, goRedisSetAP, ours, redisRate)
		fmt.Fprintln(w)
	}
	if r.window != nil {
		r.window.report(w)
	}
	if r.denied != nil {
		fmt.Fprintf(w, "The denial cache denied %s checks in %s each, with %s to Redis.\n\n",
			thousands(r.denied.count), figure(median(r.denied.nanos), nanos), figure(float64(r.denied.commands), commands))
	}
}

func reportServers(w io.Writer, where string, s samples, names ...string) {
	for _, name := range names {
		fmt.Fprintf(w, "| %s%s | %s | %.2f |\n", name, where,
			thousands(int64(median(s.of(sample.perSecond)[name]))), median(s.of(sample.cpuMicros)[name]))
	}
}

func tableHead(w io.Writer, columns []int) {
	fmt.Fprint(w, "|  |")
	for _, n := range columns {
		fmt.Fprintf(w, " %d |", n)
	}
	fmt.Fprint(w, "\n|---|"+strings.Repeat("--:|", len(columns))+"\n")
}

func (r *results) reportMemory(w io.Writer) {
	if len(r.memory) == 0 {
		return
	}
	var at []setting
	for s := range r.memory {
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
	for _, name := range sortedBy(r.memoryTimes(at[0]), false) {
		fmt.Fprintf(w, "| %s |", name)
		for _, s := range at {
			fmt.Fprintf(w, " %.0f |", median(r.memoryTimes(s)[name]))
		}
		fmt.Fprintf(w, " %.0f |\n", r.memAll[name].allocs)
	}
	fmt.Fprintln(w)
}

func (r *results) reportHTTP(w io.Writer) {
	if len(r.serve) == 0 {
		return
	}
	fmt.Fprint(w, "## Whole middleware\n\nWhat a limiter in memory adds to a call of a bare handler's ServeHTTP: nanoseconds of the caller's CPU\n"+
		"time, the same with collecting the garbage of it on other threads, allocations and their bytes; and\n"+
		"requests a second over loopback by ", keptAlive, " clients that keep their connections.\n")
	for _, framework := range frameworkNames {
		if len(r.serve[framework]) == 0 {
			continue
		}
		added, all := r.overheads(framework, sample.callerNanos)
		whole, _ := r.overheads(framework, sample.ownNanos)
		fmt.Fprintf(w, "\n| %s | ns | with garbage collection | allocations | bytes | requests/s over loopback |\n|---|--:|--:|--:|--:|--:|\n", framework)
		wire := r.wire[framework].of(sample.perSecond)
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

func (r *results) reportGrowth(w io.Writer) {
	if len(r.memUp) == 0 {
		return
	}
	fmt.Fprint(w, "## As keys grow\n\nOurs, with that many keys alive. In memory one caller asks at random.\n\n")
	fmt.Fprint(w, "| keys in memory | ns a check | bytes a key |\n|--:|--:|--:|\n")
	for _, g := range r.memUp {
		fmt.Fprintf(w, "| %s | %.0f | %s |\n", thousands(int64(g.keys)), g.nanos, g.size())
	}
	fmt.Fprint(w, "\n| keys in Redis | us a check, 256 callers | CPU of Redis, us a check | bytes a key |\n|--:|--:|--:|--:|\n")
	for _, g := range r.redisUp {
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
