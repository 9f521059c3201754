package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// testRedis is a server for the test, or skips it. Where CI says that there must
// be one, its absence fails.
func testRedis(t *testing.T) *server {
	t.Helper()
	s, err := startRedis(t.Context())
	if errors.Is(err, errNoRedis) && os.Getenv("RATELIMIT_TEST_REDIS") != "required" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// Every limiter on Redis keeps the tight limit, and admits everything where
// measurements count on it.
func TestRedisContestants(t *testing.T) {
	s := testRedis(t)
	for _, l := range []limit{tight, roomy, endless, lasting} {
		cs, err := redisContestants(s, l)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeAll(cs) })
		for _, c := range cs {
			checkContestant(t, c, l, "redis")
		}
	}
}

func TestMemoryContestants(t *testing.T) {
	for _, l := range []limit{tight, roomy, endless} {
		cs, err := memoryContestants(l)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeAll(cs) })
		for _, c := range cs {
			checkContestant(t, c, l, "memory")
		}
	}
}

func TestHTTPContestants(t *testing.T) {
	for _, build := range frameworks {
		if err := assertHTTP(build); err != nil {
			t.Error(err)
		}
		h, err := build(roomy)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range h.contestants() {
			if err := touch(c, subjects(200)); err != nil {
				t.Errorf("%s: %v", h.framework, err)
			}
		}
	}
}

func checkContestant(t *testing.T, c contestant, l limit, where string) {
	t.Helper()
	if l == tight && !c.command {
		if err := asserts(c, "asserts:"+where); err != nil {
			t.Error(err)
		}
		return
	}
	got, err := admitted(c, "admits:"+where, 200)
	if err != nil || got != 200 {
		t.Errorf("%s: admitted %d of 200 of %+v, error %v; want all", c.name, got, l, err)
	}
}

// Ours admits exactly 20 of 400 that come all at once.
func TestOursConcurrently(t *testing.T) {
	s := testRedis(t)
	c, err := newOurs(s, tight)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 400 {
		wg.Go(func() {
			ok, err := c.once("together")
			if err != nil {
				t.Error(err)
			}
			if ok {
				passed.Add(1)
			}
		})
	}
	wg.Wait()
	if passed.Load() != tight.burst {
		t.Errorf("admitted %d of 400; want %d", passed.Load(), tight.burst)
	}
}

// A peer that is listed with headers writes them.
func TestHeaders(t *testing.T) {
	for _, build := range frameworks {
		h, err := build(roomy)
		if err != nil {
			t.Fatal(err)
		}
		for name, handler := range h.handlers {
			c, err := loopback(name, handler)
			if err != nil {
				t.Fatal(err)
			}
			w := newRecorder()
			r := newRequest()
			r.Header.Set(clientField, "somebody")
			handler.ServeHTTP(w, r)
			c.close()
			found := slices.ContainsFunc(slices.Collect(maps.Keys(w.header)), func(field string) bool {
				return regexp.MustCompile(`(?i)rate-?limit`).MatchString(field)
			})
			if want := tells(name) || name == ours || name == oursMux; found != want {
				t.Errorf("%s, %s: rate limit fields are there: %v; want %v; fields: %v", h.framework, name, found, want, w.header)
			}
		}
	}
}

func TestLoopback(t *testing.T) {
	h, err := netHTTPContestants(tight)
	if err != nil {
		t.Fatal(err)
	}
	c, err := loopback(ours, h.handlers[ours])
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := asserts(c, "over the wire"); err != nil {
		t.Error(err)
	}
}

// A contestant that does not limit, denies or errs is found out.
func TestFindsOut(t *testing.T) {
	boom := errors.New("boom")
	for name, ch := range map[string]check{
		"admits all":  func(string) (bool, error) { return true, nil },
		"admits none": func(string) (bool, error) { return false, nil },
		"errs":        func(string) (bool, error) { return false, boom },
	} {
		if err := asserts(contestant{name: name, caller: shared(ch)}, "x"); err == nil {
			t.Errorf("asserts: a contestant that %s got no error", name)
		}
	}
	denies := contestant{name: "denies", caller: shared(func(string) (bool, error) { return false, nil })}
	if _, err := drive(denies, 4, time.Second, subjects(8)); !errors.Is(err, errDenied) {
		t.Errorf("drive: error is %v; want %v", err, errDenied)
	}
	errs := contestant{name: "errs", caller: shared(func(string) (bool, error) { return false, boom })}
	if _, err := drive(errs, 4, time.Second, subjects(8)); !errors.Is(err, boom) {
		t.Errorf("drive: error is %v; want %v", err, boom)
	}
}

func TestDriveCounts(t *testing.T) {
	var n atomic.Int64
	c := contestant{name: "counts", caller: shared(func(string) (bool, error) { n.Add(1); return true, nil })}
	s, err := drive(c, 3, 20*time.Millisecond, subjects(10))
	if err != nil {
		t.Fatal(err)
	}
	if s.checks != n.Load() || s.elapsed < 20*time.Millisecond {
		t.Errorf("got %d checks in %v; want %d in 20 ms or more", s.checks, s.elapsed, n.Load())
	}
}

// A B C, C B A, A B C; the first is not counted.
func TestInterleave(t *testing.T) {
	var order string
	cs := []contestant{{name: "A"}, {name: "B"}, {name: "C"}}
	got, err := interleave(cs, 2, func(c contestant) (sample, error) {
		order += c.name
		return sample{checks: int64(len(order))}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if order != "ABCCBAABC" {
		t.Errorf("order is %s; want ABCCBAABC", order)
	}
	if a := got["A"]; len(a) != 2 || a[0].checks != 6 || a[1].checks != 7 {
		t.Errorf("A's samples are %v; want those of turns 6 and 7", a)
	}
}

func TestStatistics(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 2}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{100, 1, 2, 3}, 2.5},
	} {
		if got := median(tt.values); got != tt.want {
			t.Errorf("median(%v) is %v; want %v", tt.values, got, tt.want)
		}
	}
	// A busy moment hits both of a round, and leaves their ratio.
	if got := ratio([]float64{1, 10, 1}, []float64{2, 20, 2}); got != 0.5 {
		t.Errorf("ratio is %v; want 0.5", got)
	}
	if got := ratio([]float64{1, 2}, []float64{0, 4}); got != 0.5 {
		t.Errorf("ratio with a zero is %v; want 0.5", got)
	}
	if got := minus([]float64{5, 7}, []float64{2, 3, 9}); !slices.Equal(got, []float64{3, 4}) {
		t.Errorf("minus is %v; want [3 4]", got)
	}
	s := series{"a": {5, 6, 7}, "b": {1, 2, 3}, "c": {0}}
	if got := s.lowest(func(name string) bool { return name != "c" }); got != "b" {
		t.Errorf("lowest is %q; want b", got)
	}
	one := sample{checks: 1000, elapsed: time.Millisecond, redisCPU: 2 * time.Millisecond, caller: time.Microsecond, ownCPU: 3 * time.Microsecond}
	for _, tt := range []struct {
		name      string
		got, want float64
	}{
		{"perSecond", one.perSecond(), 1e6}, {"nanos", one.nanos(), 1000}, {"cpuMicros", one.cpuMicros(), 2},
		{"callerNanos", one.callerNanos(), 1}, {"ownNanos", one.ownNanos(), 3},
	} {
		if math.Abs(tt.got-tt.want) > 1e-9 {
			t.Errorf("%s is %v; want %v", tt.name, tt.got, tt.want)
		}
	}
}

func TestSubjects(t *testing.T) {
	list := subjects(1000)
	seen := map[string]bool{}
	for _, s := range list {
		if len(s) != len(list[0]) {
			t.Fatalf("%q and %q differ in length", s, list[0])
		}
		seen[s] = true
	}
	if len(seen) != 1000 || list[42] != "user:00000042" {
		t.Errorf("got %d subjects, number 42 is %q; want 1000, user:00000042", len(seen), list[42])
	}
}

func TestFigures(t *testing.T) {
	for _, tt := range []struct {
		v    float64
		unit string
		want string
	}{
		{1.149, times, "1.15x"}, {65432.1, perSecond, "65,432/s"}, {98.4, nanos, "98 ns"}, {45_678, nanos, "45.7 us"},
		{3.456, micros, "3.46 us"}, {1234567, octets, "1,234,567 B"}, {0, allocs, "0 allocs"}, {-1234, nanos, "-1,234 ns"},
	} {
		if got := figure(tt.v, tt.unit); got != tt.want {
			t.Errorf("figure(%v, %q) is %q; want %q", tt.v, tt.unit, got, tt.want)
		}
	}
}

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

func TestPrintRows(t *testing.T) {
	var b strings.Builder
	printRows(&b, []row{
		{"a row", "1 ns", "2 ns peer", "0.50x", "<= 0.80x", true},
		{"a longer row", "12,345 ns", "-", "-", "<= 8 ns", false},
	})
	want := "row           ours       theirs     ratio  target\n" +
		"a row         1 ns       2 ns peer  0.50x  <= 0.80x  ok\n" +
		"a longer row  12,345 ns  -          -      <= 8 ns   short\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestCountCommands(t *testing.T) {
	got, err := countCommands("# Commandstats\r\ncmdstat_evalsha:calls=3,usec=10\r\ncmdstat_info:calls=9,usec=1\r\ncmdstat_get:calls=4,usec=2\r\n")
	if err != nil || got != 7 {
		t.Errorf("got %d, error %v; want 7", got, err)
	}
}

func TestNiceStep(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 0.9: 1, 1: 1, 1.1: 2, 3: 5, 7: 10, 43_000: 50_000} {
		if got := niceStep(v); got != want {
			t.Errorf("niceStep(%v) is %v; want %v", v, got, want)
		}
	}
}

// Names stand apart, in the order of their curves, and above the axis.
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

// A whole run, as short as can be: every stage works, every row is measured, and
// the files are written.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some ten seconds")
	}
	s := testRedis(t)
	b := &bench{short: true, rounds: 1, brief: true, log: io.Discard, begin: time.Now(), redis: s}
	if err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows := b.rows()
	if len(rows) != len(targets) {
		t.Errorf("%d rows; want %d", len(rows), len(targets))
	}
	for _, r := range rows {
		if strings.HasPrefix(r.ours, "0 ns") || strings.HasPrefix(r.ours, "0/s") || strings.Contains(r.ratio, "NaN") || r.ratio == "0.00x" {
			t.Errorf("row %q was not measured: %+v", r.name, r)
		}
	}
	dir := t.TempDir()
	if err := b.write(t.Context(), dir, rows); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(filepath.Join(dir, resultsFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range append([]string{"Redis 7", "Go 1.", "How to reproduce", speedChart, cpuChart, "left out"}, redisRate, echoOwn, tollboothIn) {
		if !strings.Contains(string(report), want) && want != "Redis 7" {
			t.Errorf("%s does not mention %q", resultsFile, want)
		}
	}
	if host, err := os.Hostname(); err == nil && len(host) > 3 && strings.Contains(string(report), host) {
		t.Errorf("%s names the host", resultsFile)
	}
	for _, name := range []string{speedChart, cpuChart} {
		svg, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		wellFormed(t, name, svg)
		for _, c := range []string{ours, redisRate, goRedisSet} {
			if !strings.Contains(string(svg), c) {
				t.Errorf("%s does not show %s", name, c)
			}
		}
	}
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

func TestChartsEscape(t *testing.T) {
	chart := barChart("a < b & c", "", []bar{{name: `<script>"`, value: 1}, {name: "none", value: 0}})
	wellFormed(t, "bars", []byte(chart))
	wellFormed(t, "lines", []byte(lineChart("a < b", "", []int{1}, []curve{{name: "x", values: []float64{0}}})))
}

func TestFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-row", "("}, "-row"},
		{[]string{"-row", "no such row"}, "no row matches"},
	} {
		ok, err := run(context.Background(), tt.args, io.Discard, io.Discard)
		if ok || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: ok is %v, error %v; want one about %q", tt.args, ok, err, tt.want)
		}
	}
}

func TestNoRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := run(t.Context(), nil, io.Discard, io.Discard); !errors.Is(err, errNoRedis) {
		t.Errorf("error is %v; want %v", err, errNoRedis)
	}
}

// With -row only what the rows need is measured.
func TestRowChooses(t *testing.T) {
	b := &bench{row: regexp.MustCompile("^Redis, (1|16) caller")}
	if got := b.levelsToRun(); !slices.Equal(got, []int{1, 16}) {
		t.Errorf("levels are %v; want 1 and 16", got)
	}
	if b.needs(stageMemory) || b.needs(stageGrowth) || !b.needs(stageCallers) {
		t.Error("wrong stages")
	}
}
