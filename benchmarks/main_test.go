package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

func TestMain(m *testing.M) {
	redistest.Child(waitingVar, waitingProcess)
	os.Exit(m.Run())
}

func TestFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-row", "("}, "-row"},
		{[]string{"-row", "no such row"}, "no row matches"},
		{[]string{"-runs", "-1"}, "-runs is -1"},
		{[]string{"-server", "no-such-server"}, `-server is "no-such-server"`},
	} {
		ok, err := run(context.Background(), tt.args, io.Discard, io.Discard)
		if ok || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: ok is %v, error %v; want one about %q", tt.args, ok, err, tt.want)
		}
	}
}

func TestNoRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("RATELIMIT_BENCH_SERVER", "")
	t.Setenv("RATELIMIT_TEST_SERVER", "")
	if _, err := run(t.Context(), nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("error is %v; want one that says how to install Redis", err)
	}
}

func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	redistest.Need(t)
	r := report{settings: settings{short: true, rounds: 1, brief: true, progress: newProgress(io.Discard)}}
	if err := r.runAll(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	rows := r.rows
	if len(rows) != len(targets) {
		t.Errorf("%d rows; want %d", len(rows), len(targets))
	}
	for _, r := range rows {
		if strings.HasPrefix(r.ours, "0 ns") || strings.HasPrefix(r.ours, "0/s") || strings.Contains(r.ratio, "NaN") || r.ratio == "0.00x" {
			t.Errorf("row %q was not measured: %+v", r.name, r)
		}
	}
	dir := t.TempDir()
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(filepath.Join(dir, resultsFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{r.server, "Go 1.", "How to reproduce", speedChart, cpuChart, "left out", "runs: 1", redisRate, redisRateAP, echoOwn, echoV5Own, tollboothIn, onRing} {
		if !strings.Contains(string(report), want) {
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

// The rounds of all runs count.
func TestRuns(t *testing.T) {
	redistest.Need(t)
	r := report{settings: settings{rounds: 2, row: regexp.MustCompile("^Denied from the cache: time"), progress: newProgress(io.Discard)}}
	if err := r.runAll(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if got := len(r.denied.nanos); got != 6 || len(r.rows) != 1 || r.rows[0].spread == "-" {
		t.Errorf("got %d rounds, rows %+v; want 6, one with a spread", got, r.rows)
	}
}
