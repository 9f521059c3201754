package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// judged runs the rows over 20 seeds, or 4 with -short, once for all tests. Of
// published rows that ours are not compared with, 5 tell enough.
var judged = sync.OnceValues(func() (map[string]*verdict, error) {
	seeds := 20
	if testing.Short() {
		seeds = 4
	}
	var wg sync.WaitGroup
	verdicts, errs := make([]*verdict, len(rows)), make([]error, len(rows))
	for i := range rows {
		n := seeds
		switch {
		case rows[i].name == "none":
			n = 1 // 109,000 requests
		case rows[i].published != nil && rows[i].name != "remaining":
			n = min(n, 5)
		}
		wg.Go(func() { verdicts[i], errs[i] = rows[i].over(1, n) })
	}
	wg.Wait()
	byName := map[string]*verdict{}
	for i, v := range verdicts {
		if errs[i] != nil {
			return nil, errs[i]
		}
		byName[v.name] = v
	}
	return byName, nil
})

func verdictOf(t *testing.T, name string) *verdict {
	t.Helper()
	all, err := judged()
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

// Ours is better than proportional-remaining on everything at once, in the same
// simulation and against what was published, whether it is told all or
// RateLimit-Remaining alone. In the clearing run both sleep the second that
// they start with and then no more: there the difference is some milliseconds.
func TestAdaptiveIsBetter(t *testing.T) {
	peer := verdictOf(t, "remaining")
	for _, name := range []string{"adaptive-remaining-only", "adaptive"} {
		ours := verdictOf(t, name)
		for k, metric := range metricNames {
			if ours.mean[k] >= peer.mean[k] || ours.worst[k] >= peer.worst[k] {
				t.Errorf("%s, %s: got mean %.4f, worst %.4f; want less than %.4f, %.4f", name, metric, ours.mean[k], ours.worst[k], peer.mean[k], peer.worst[k])
			}
			if ours.worst[k] >= peer.published[k] {
				t.Errorf("%s, %s: got worst %.4f; want less than the published %.2f", name, metric, ours.worst[k], peer.published[k])
			}
		}
	}
}

// Who takes slots from a store is never refused, and nobody gets more than one
// request ahead.
func TestCoordinatedIsNeverRefused(t *testing.T) {
	v := verdictOf(t, "coordinated")
	if v.worst[0] != 0 {
		t.Errorf("got %.2f %% refused; want none", v.worst[0])
	}
	for i, counts := range v.counts {
		if slices.Max(counts[:])-slices.Min(counts[:]) > 1 {
			t.Errorf("seed %d: got counts %v; want no two further apart than 1", i+1, counts)
		}
	}
}

// The published strategies land near the published figures, which are one run
// each, on a wall clock. The bounds are ratios of our means to them, as seen
// over 5 and 20 seeds with room. Two stand out: exponential backoff of 1.2 sleeps
// longer here, as its longest sleep is the end of the longest row of refusals,
// and gradual clears sooner, as virtual time has no overhead.
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
		v := verdictOf(t, c.name)
		for k, metric := range metricNames {
			if ratio := v.mean[k] / v.published[k]; ratio < c.bounds[k][0] || ratio > c.bounds[k][1] {
				t.Errorf("%s, %s: got %.2f, %.2f times the published %.2f; want %v", c.name, metric, v.mean[k], ratio, v.published[k], c.bounds[k])
			}
		}
	}
}

func TestNoneIsRefusedAllTheTime(t *testing.T) {
	v := verdictOf(t, "none")
	if got, want := v.mean[0], 100*(1-2250/(clients*runTakes.Seconds()/requestTakes.Seconds())); math.Abs(got-want) > 0.1 {
		t.Errorf("got %.2f %%; want %.2f", got, want)
	}
}

// The same seed gives the same table, another one does not.
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

func TestCharts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "charts")
	var progress strings.Builder
	if err := simulate(io.Discard, &progress, settings{seed: 1, seeds: 1, short: true, out: dir}); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows[5:] {
		for suffix, magic := range map[string]string{".png": "\x89PNG", ".svg": "<?xml"} {
			b, err := os.ReadFile(filepath.Join(dir, r.name+suffix))
			if err != nil || !bytes.HasPrefix(b, []byte(magic)) {
				t.Errorf("%s%s: got %.8q, %v; want %q", r.name, suffix, b, err, magic)
			}
		}
		if !strings.Contains(progress.String(), r.name) {
			t.Errorf("%s is not in the progress:\n%s", r.name, &progress)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		args, fault string // "" for none
	}{
		{"", ""},
		{"-seed 3 -seeds 20 -short -out x", ""},
		{"-seeds 0", "-seeds is 0"},
		{"-seeds ten", "seeds"},
		{"-seed -1", "seed"},
		{"-speed 1", "-speed"},
		{"fast", `"fast" is not a flag`},
		{"-h", "help requested"},
	} {
		_, err := readSettings(strings.Fields(c.args))
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%q: got %v; want %q", c.args, err, c.fault)
		}
	}
}
