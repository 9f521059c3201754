package main

import (
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

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

// What drive allocates itself does not count as the contestant's.
func TestDriveAllocatesNothingForACheck(t *testing.T) {
	idle := contestant{name: "idle", caller: shared(func(string) (bool, error) { return true, nil })}
	s, err := drive(idle, 3, 20*time.Millisecond, subjects(10))
	if err != nil {
		t.Fatal(err)
	}
	if s.allocs() != 0 {
		t.Errorf("got %v allocations for each of %d checks; want 0", s.allocs(), s.checks)
	}
}

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
	one := sample{checks: 1000, elapsed: time.Millisecond, redisCPU: 2 * time.Millisecond, caller: time.Microsecond, ownCPU: 3 * time.Microsecond, mallocs: 3560}
	for _, tt := range []struct {
		name      string
		got, want float64
	}{
		{"perSecond", one.perSecond(), 1e6}, {"nanos", one.nanos(), 1000}, {"cpuMicros", one.cpuMicros(), 2},
		{"callerNanos", one.callerNanos(), 1}, {"ownNanos", one.ownNanos(), 3}, {"allocs", one.allocs(), 3.6},
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
