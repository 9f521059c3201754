package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// metrics are the figures of one seed, in the order of the table: retry rate in percent,
// longest sleep in seconds, standard deviation of the request counts, seconds to clear.
type metrics [4]float64

// row is a strategy.
type row struct {
	name          string
	published     *metrics // nil where there is no published figure
	remainingOnly bool     // the server sends RateLimit-Remaining alone
	// make prepares a run and returns a constructor for each process's strategy. left and
	// frozen are the server's state, start is the first sleep.
	make func(left int64, frozen bool, start time.Duration, random *rand.Rand) (func() strategy, error)
}

// increasing returns a published strategy that sleeps before each request.
func increasing(decrease func(float64, int64) float64) func(int64, bool, time.Duration, *rand.Rand) (func() strategy, error) {
	return func(_ int64, _ bool, start time.Duration, _ *rand.Rand) (func() strategy, error) {
		return func() strategy { return &increase{value: start.Seconds(), min: minSleep, decrease: decrease} }, nil
	}
}

// always returns a strategy without preparation.
func always(s strategy) func(int64, bool, time.Duration, *rand.Rand) (func() strategy, error) {
	return func(int64, bool, time.Duration, *rand.Rand) (func() strategy, error) {
		return func() strategy { return s }, nil
	}
}

func pacing(_ int64, _ bool, start time.Duration, random *rand.Rand) (func() strategy, error) {
	return func() strategy { return newAdaptive(start, random) }, nil
}

func coordinating(left int64, frozen bool, start time.Duration, _ *rand.Rand) (func() strategy, error) {
	store, err := newBucket(left, frozen)
	return func() strategy { return &coordinated{store: store, start: start} }, err
}

var rows = []row{
	{"none", nil, true, always(none{})},
	{"backoff-2", &metrics{60.08, 854.89, 387.82, 74.23}, true, always(backoff{factor: 2})},
	{"backoff-1.2", &metrics{80.41, 46.72, 147.84, 74.33}, true, always(backoff{factor: 1.2})},
	{"gradual", &metrics{40.56, 139.91, 867.73, 115.54}, true, increasing(gradual)},
	{"proportional", &metrics{3.66, 17.31, 101.94, 551.10}, true, increasing(proportional)},
	{"remaining", &metrics{3.07, 17.32, 78.44, 84.23}, true, increasing(remaining)},
	{"adaptive-remaining-only", nil, true, pacing},
	{"adaptive", nil, false, pacing},
	{"coordinated", nil, false, coordinating},
}

// measure runs the half hour and the clearing run with one seed.
func (r *row) measure(seed uint64) (m metrics, half *outcome, err error) {
	half, err = r.run(0, false, 0, seed, runTakes, -1)
	if err != nil {
		return m, nil, err
	}
	clearing, err := r.run(limit.Count, true, startSleep, seed, giveUpAfter, clearedAt)
	if err != nil {
		return m, nil, err
	}
	return metrics{half.retryRate(), half.longest.Seconds(), half.stdev(), clearing.took.Seconds()}, half, nil
}

func (r *row) run(left int64, frozen bool, start time.Duration, seed uint64, until time.Duration, stopAt int64) (*outcome, error) {
	srv, err := newServer(left, frozen, r.remainingOnly)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	newStrategy, err := r.make(left, frozen, start, rand.New(rand.NewPCG(seed, 1)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	o, err := run(srv, newStrategy, seed, until, stopAt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.name, err)
	}
	return o, nil
}

// summary is the result of a row over several seeds.
type summary struct {
	*row
	seeds       []metrics
	counts      [][clients]int // of requests in the half hour, for each seed
	mean, worst metrics
}

func (r *row) over(first uint64, seeds int) (*summary, error) {
	v := &summary{row: r}

	for i := range seeds {
		m, half, err := r.measure(first + uint64(i))
		if err != nil {
			return nil, err
		}
		v.seeds = append(v.seeds, m)
		v.counts = append(v.counts, half.attempts)
		for k := range m {
			v.mean[k] += m[k] - v.seeds[0][k] // so that the mean of equal values is exact
			v.worst[k] = max(v.worst[k], m[k])
		}
	}

	for k := range v.mean {
		v.mean[k] = v.seeds[0][k] + v.mean[k]/float64(seeds)
	}
	return v, nil
}
