package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // the worlds keep little of what they make
	os.Exit(m.Run())
}

// summaries runs the rows with 20 seeds, or 4 with -short, once for all tests. For published
// rows that are not compared with ours, 5 seeds are enough.
var summaries = sync.OnceValues(func() (map[string]*summary, error) {
	seeds := 20
	if testing.Short() {
		seeds = 4
	}
	var wg sync.WaitGroup
	byRow, errs := make([]*summary, len(rows)), make([]error, len(rows))
	for i := range rows {
		n := seeds
		switch {
		case rows[i].name == "none":
			n = 1 // 109,000 requests
		case rows[i].published != nil && rows[i].name != "remaining":
			n = min(n, 5)
		}
		wg.Go(func() { byRow[i], errs[i] = rows[i].over(1, n) })
	}
	wg.Wait()
	byName := map[string]*summary{}
	for i, v := range byRow {
		if errs[i] != nil {
			return nil, errs[i]
		}
		byName[v.name] = v
	}
	return byName, nil
})

func summaryOf(t *testing.T, name string) *summary {
	t.Helper()
	all, err := summaries()
	if err != nil {
		t.Fatal(err)
	}
	v := all[name]
	if v == nil {
		t.Fatalf("no row %q", name)
	}
	return v
}

var metricNames = [...]string{"retry rate", "longest sleep", "stdev", "time to clear"}

// Adaptive is better than the published figures of the row remaining in all figures at once, and keeps
// to 1 %, 15 s, 1.0 and 80 s. In the clearing run both sleep only at the start.
func TestAdaptiveIsBetter(t *testing.T) {
	if testing.Short() {
		t.Skip("4 seeds say too little of the worst")
	}
	peer, ours := summaryOf(t, "remaining"), summaryOf(t, "adaptive")
	for k, metric := range metricNames {
		if most := (metrics{1, 15, 1, 80})[k]; ours.mean[k] > most || ours.worst[k] >= peer.published[k] {
			t.Errorf("%s: got mean %.4f, worst %.4f; want at most %.0f, and less than the published %.2f", metric, ours.mean[k], ours.worst[k], most, peer.published[k])
		}
	}
}

// With a shared store no request is denied, and the threads' request counts differ by at most 1.
func TestCoordinatedIsNeverDenied(t *testing.T) {
	v := summaryOf(t, "coordinated")
	if v.worst[0] != 0 {
		t.Errorf("got %.2f %% denied; want none", v.worst[0])
	}
	for i, counts := range v.counts {
		if slices.Max(counts[:])-slices.Min(counts[:]) > 1 {
			t.Errorf("seed %d: got counts %v; want a difference of at most 1", i+1, counts)
		}
	}
}

// The published strategies give figures near the published ones, which are of a single run each,
// on a wall clock. The bounds are ratios of our means to them, measured over 5 and 20 seeds, with a
// margin. Two are far: backoff-1.2 sleeps longer here, since its longest sleep depends on the longest
// series of denials, and gradual clears sooner, since virtual time has no overhead.
func TestPublishedStrategies(t *testing.T) {
	for _, c := range []struct {
		name   string
		bounds [4][2]float64
	}{
		{"backoff-2", [4][2]float64{{0.9, 1.2}, {0.8, 1.8}, {0.6, 1.2}, {0.98, 1.02}}},
		{"backoff-1.2", [4][2]float64{{0.9, 1.1}, {1.5, 5}, {0.9, 2.3}, {0.98, 1.02}}},
		{"gradual", [4][2]float64{{0.9, 1.3}, {1, 1.9}, {0.9, 1.15}, {0.6, 1.02}}},
		{"proportional", [4][2]float64{{0.7, 1.2}, {0.8, 1.3}, {0.7, 1.4}, {0.9, 1.02}}},
		{"remaining", [4][2]float64{{0.9, 1.5}, {0.9, 1.5}, {0.9, 1.8}, {0.85, 1.02}}},
	} {

		v := summaryOf(t, c.name)
		for k, metric := range metricNames {
			if ratio := v.mean[k] / v.published[k]; ratio < c.bounds[k][0] || ratio > c.bounds[k][1] {
				t.Errorf("%s, %s: got %.2f, %.2f times the published %.2f; want %v", c.name, metric, v.mean[k], ratio, v.published[k], c.bounds[k])
			}
		}
	}
}

func TestNoneIsMostlyDenied(t *testing.T) {
	v := summaryOf(t, "none")
	if got, want := v.mean[0], 100*(1-2250/(clients*runTakes.Seconds()/requestTakes.Seconds())); math.Abs(got-want) > 0.1 {
		t.Errorf("got %.2f %%; want %.2f", got, want)
	}
}

// The same seed gives the same table, another seed another one.
func TestDeterminism(t *testing.T) {
	table := func(seed uint64) string {
		var b bytes.Buffer
		if err := simulate(&b, io.Discard, settings{seed: seed, seeds: 1, short: true}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	first := table(7)
	if again := table(7); again != first {
		t.Errorf("got\n%s\nand then\n%s", first, again)
	}
	if other := table(8); other == first {
		t.Errorf("seeds 7 and 8 both gave\n%s", first)
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		args, fault string // "" for none
	}{
		{"", ""},
		{"-seed 3 -seeds 20 -short", ""},
		{"-seeds 0", "-seeds is 0"},
		{"-seeds ten", "seeds"},
		{"-seed -1", "seed"},
		{"-speed 1", "-speed"},
		{"fast", `"fast" is not a flag`},
		{"-h", "help requested"},
		{"-worlds -seed 2", ""},
		{"-clients 5", ""},
		{"-limit 10", "-limit"},
		{"-limit 1000000/second", "-limit is 1000000/second"},
		{"-window round", "want one of gcra fixed strict"},
		{"-fields draft5", "want one of draft6"},
		{"-lie yes", "want one of 4000 day"},
		{"-clients 0", "-clients is 0"},
		{"-clients 2 -processes 3", "-processes is 3"},
		{"-clients 4 -join 2 -leave 2", "-join is 2"},
	} {

		_, err := readSettings(strings.Fields(c.args))
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%q: got %v; want %q", c.args, err, c.fault)
		}
	}
}
