package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Every benchmark runs, after its contestants have kept a limit, and every target finds its
// figures.
func TestBenchmarks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	out, err := exec.Command(program, "-test.run=^$", "-test.bench=.", "-test.benchtime=1x", "-test.short").Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	redistest.Need(t)
	samples := filepath.Join(t.TempDir(), samplesFile)
	if err := os.WriteFile(samples, out, 0o600); err != nil {
		t.Fatal(err)
	}
	figures, err := readFigures(samples)
	if err != nil {
		t.Fatal(err)
	}

	table, err := figures.table()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(table, "NaN") {
		t.Errorf("a target was not measured:\n%s", table)
	}
}

// A contestant that admits too much, or too little, is not measured.
func TestKeeps(t *testing.T) {
	boom := errors.New("boom")
	var n atomic.Int64
	for name, ch := range map[string]check{
		"admits all":  func(string) (bool, error) { return true, nil },
		"admits none": func(string) (bool, error) { return false, nil },
		"admits 22":   func(string) (bool, error) { return n.Add(1) <= 22, nil },
		"fails":       func(string) (bool, error) { return true, boom },
	} {
		if keeps(ch, "x") == nil {
			t.Errorf("a limiter that %s passes; want an error", name)
		}
	}
}

// A denial or an error ends a measurement.
func TestAskFails(t *testing.T) {
	boom := errors.New("boom")
	denies := func(string) (bool, error) { return false, nil }
	fails := func(string) (bool, error) { return true, boom }
	if err := ask(shared(denies), 3, 10, subjects(2)); !errors.Is(err, errDenied) {
		t.Errorf("got %v; want %v", err, errDenied)
	}
	if err := ask(shared(fails), 3, 10, subjects(2)); !errors.Is(err, boom) {
		t.Errorf("got %v; want %v", err, boom)
	}
}

// Callers make exactly so many checks, and of all subjects alike.
func TestAskCounts(t *testing.T) {
	for _, callers := range []int{1, 3, 256} {
		asked := map[string]*atomic.Int64{}
		for _, s := range subjects(10) {
			asked[s] = new(atomic.Int64)
		}
		err := ask(shared(func(s string) (bool, error) { asked[s].Add(1); return true, nil }), callers, 100_000, subjects(10))
		for s, n := range asked {
			if n.Load() != 10_000 || err != nil {
				t.Errorf("%d callers asked %d times about %s, error %v; want 10000", callers, n.Load(), s, err)
			}
		}
	}
}

// README.md and RESULTS.md have the same figures.
func TestQuoted(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	results, err := os.ReadFile("RESULTS.md")
	if err != nil {
		t.Fatal(err)
	}

	again := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(again, page, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := quote(again, string(results)); err != nil {
		t.Fatal(err)
	}
	if want, err := os.ReadFile(again); err != nil || string(want) != string(page) {
		t.Errorf("README.md has other figures than RESULTS.md, %v; make bench writes both", err)
	}
}
