package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// traffic is the times of requests, in order.
type traffic struct {
	name, description string
	at                []time.Duration
}

// lasting is long enough that the full bucket at the start has no effect at the end.
const lasting = 40 * time.Second

var traffics = []traffic{
	{"edge", "40 requests in the two seconds around a window's edge", evenly(9*time.Second, 11*time.Second, 40)},
	{"steady", "4 requests a second for 30 seconds, twice what the limit sustains", evenly(0, 30*time.Second, 120)},
	{"two bursts", "40 requests at once, and 40 nine seconds later", slices.Concat(
		slices.Repeat([]time.Duration{8 * time.Second}, 40), slices.Repeat([]time.Duration{17 * time.Second}, 40))},
}

func evenly(from, to time.Duration, n int) []time.Duration {
	at := make([]time.Duration, n)
	for i := range at {
		at[i] = from + (to-from)*time.Duration(i)/time.Duration(n)
	}
	return at
}

// simulateAll returns the times of the allowed requests, by algorithm and traffic.
func simulateAll() ([][][]time.Duration, error) {
	runs := make([][][]time.Duration, len(algorithms))
	for i, a := range algorithms {
		for _, t := range traffics {
			allowed, err := simulate(a, t)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", a.name, t.name, err)
			}
			runs[i] = append(runs[i], allowed)
		}
	}
	return runs, nil
}

// simulate returns the times of the allowed requests. The store's clock is the time of the
// next request, so the result does not depend on the machine.
func simulate(a algorithm, t traffic) (allowed []time.Duration, err error) {
	var now time.Duration
	store := a.open(func() time.Time { return time.Unix(0, int64(now)) })
	for _, now = range t.at {
		r, err := gcra.Take(context.Background(), store, gcra.Charge{Subject: "client", Policy: "p", Limit: limit, Cost: 1})
		if err != nil {
			return nil, err
		}
		if r.Allowed {
			allowed = append(allowed, now)
		}
	}
	return allowed, nil
}

// within returns the number of times in the window that ends at end, inclusive.
func within(times []time.Duration, end, window time.Duration) (n int) {
	for _, t := range times {
		if t > end-window && t <= end {
			n++
		}
	}
	return n
}

// most returns the largest number of times in any window: it ends at one of the times.
func most(times []time.Duration, window time.Duration) (n int) {
	for _, end := range times {
		n = max(n, within(times, end, window))
	}
	return n
}

// memoryOf measures the memory of a key for limits of up to ten times the limit.
func memoryOf(a algorithm) (points plotter.XYs, err error) {
	for count := limit.Count; count <= 10*limit.Count; count += limit.Count {
		bytes, _, err := cost(a, count, 1000)
		if err != nil {
			return nil, err
		}
		points = append(points, plotter.XY{X: float64(count), Y: bytes})
	}
	return points, nil
}

// cost measures the memory of a key whose limit of count requests is used up, and the time of a
// check. The time differs from run to run.
func cost(a algorithm, count int64, keys int) (bytes, micros float64, err error) {
	ctx := context.Background()
	charge := gcra.Charge{Policy: "p", Limit: gcra.Limit{Count: count, Per: time.Hour}, Cost: 1}
	subjects := make([]string, keys)
	for i := range subjects {
		subjects[i] = fmt.Sprint("client ", i)
	}

	before := heap()
	store := a.open(time.Now)
	start := time.Now()
	charges := make([]gcra.Charge, 1)
	for range count {
		for _, charge.Subject = range subjects {
			charges[0] = charge
			if _, err := store.Take(ctx, charges); err != nil {
				return 0, 0, err
			}
		}
	}

	took := time.Since(start)
	bytes = float64(heap()-before) / float64(keys)
	runtime.KeepAlive(store)
	runtime.KeepAlive(subjects)
	return bytes, float64(took.Microseconds()) / float64(int64(keys)*count), nil
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
