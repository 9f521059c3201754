package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// check asks a limiter about one subject. It belongs to one goroutine.
type check func(subject string) (admitted bool, err error)

// pass makes a check that must be admitted, as of a limit that is never reached.
func (ch check) pass(subject string) error {
	admitted, err := ch(subject)
	if err == nil && !admitted {
		return errDenied
	}
	return err
}

// contestant is a limiter under measurement or, as a bound of what is possible,
// a plain command (see isCommand).
type contestant struct {
	name   string
	on     deployment   // the limiters on Redis: where their keys are
	caller func() check // makes a check for one goroutine, which may keep scratch space in it
	crowd  int          // how many times the callers of the stage; 0 means once

	close func()
}

// once is one check by a caller of its own.
func (c contestant) once(subject string) (bool, error) { return c.caller()(subject) }

// shared is a contestant whose callers need no scratch space.
func shared(ch check) func() check { return func() check { return ch } }

func closeAll(cs []contestant) {
	for _, c := range cs {
		if c.close != nil {
			c.close()
		}
	}
}

// sample is what came of one slice of time.
type sample struct {
	checks   int64
	elapsed  time.Duration
	caller   time.Duration // CPU time of the caller, where there is one
	ownCPU   time.Duration // of this process: garbage collection too
	redisCPU time.Duration // what Redis used meanwhile, where that was asked
	mallocs  uint64        // objects that this process allocated
}

// perSecond is how many checks a second were done.
func (s sample) perSecond() float64 { return float64(s.checks) / s.elapsed.Seconds() }

// nanos is the time from one check to the next, in nanoseconds. With several
// callers it is the inverse of what they do together.
func (s sample) nanos() float64 { return float64(s.elapsed.Nanoseconds()) / float64(s.checks) }

// callerNanos is the only caller's CPU time for one check, in nanoseconds. For
// a check that waits for nothing it is the time that it takes, without what
// else the machine does meanwhile.
func (s sample) callerNanos() float64 { return float64(s.caller.Nanoseconds()) / float64(s.checks) }

// ownNanos is this process's CPU time for one check, in nanoseconds: with
// what other threads do for it, collecting garbage above all.
func (s sample) ownNanos() float64 { return float64(s.ownCPU.Nanoseconds()) / float64(s.checks) }

// cpuMicros is Redis's CPU time for one check, in microseconds.
func (s sample) cpuMicros() float64 {
	return float64(s.redisCPU.Nanoseconds()) / 1e3 / float64(s.checks)
}

// allocs is how many objects this process allocated for one check, to a tenth.
func (s sample) allocs() float64 { return math.Round(10*float64(s.mallocs)/float64(s.checks)) / 10 }

// drive keeps callers busy for a slice of time: each asks for the next subject as
// soon as it has an answer. They start at different places of the list, so that
// all subjects are in use. No limit is reached here, so a denial is an error.
func drive(c contestant, callers int, slice time.Duration, list []string) (sample, error) {
	var (
		stop   atomic.Bool
		total  atomic.Int64
		failed = make(chan error, callers)
		wg     sync.WaitGroup
	)
	checks := make([]check, callers)
	for i := range checks {
		checks[i] = c.caller()
	}
	// What others left behind is not this contestant's to collect.
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var caller time.Duration
	begin, used := time.Now(), ownCPU()
	for i, ch := range checks {
		wg.Go(func() {
			if callers == 1 {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				begin := threadCPU()
				defer func() { caller = threadCPU() - begin }()
			}
			next := i * len(list) / callers
			n := int64(0)
			// One check at least: on a busy machine a caller may begin after the end.
			for first := true; first || !stop.Load(); first = false {
				if err := ch.pass(list[next]); err != nil {
					failed <- err
					stop.Store(true)
					break
				}
				n++
				if next++; next == len(list) {
					next = 0
				}
			}
			total.Add(n)
		})
	}
	timer := time.AfterFunc(slice, func() { stop.Store(true) })
	wg.Wait()
	elapsed, used := time.Since(begin), ownCPU()-used
	timer.Stop()
	runtime.ReadMemStats(&after)
	close(failed)
	if err := <-failed; err != nil {
		return sample{}, fmt.Errorf("%s: %w", c.name, err)
	}
	return sample{checks: total.Load(), elapsed: elapsed, caller: caller, ownCPU: used, mallocs: after.Mallocs - before.Mallocs}, nil
}

var errDenied = fmt.Errorf("denied a check of a limit that is never reached")

// series is one figure of each contestant, round by round: series[c][r] was
// taken in round r, close in time to every other contestant's.
type series map[string][]float64

// samples are the slices that contestants were given, round by round.
type samples map[string][]sample

// of extracts one figure.
func (s samples) of(figure func(sample) float64) series {
	out := series{}
	for name, all := range s {
		for _, one := range all {
			out[name] = append(out[name], figure(one))
		}
	}
	return out
}

// interleave gives every contestant a slice in each round: A B C, C B A, A B C.
// So whatever else the machine does meanwhile hits all of them alike. One round
// ahead of the others warms up and is not counted.
func interleave(cs []contestant, rounds int, run func(contestant) (sample, error)) (samples, error) {
	out := samples{}
	order := slices.Clone(cs)
	for r := range rounds + 1 {
		for _, c := range order {
			s, err := run(c)
			if err != nil {
				return nil, err
			}
			if r > 0 {
				out[c.name] = append(out[c.name], s)
			}
		}
		slices.Reverse(order)
	}
	return out, nil
}

// median is the middle of the values; 0 when there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	n := len(v) / 2
	if len(v)%2 == 1 {
		return v[n]
	}
	return (v[n-1] + v[n]) / 2
}

// ratio is the median of the ratios within a round. It is steadier than the ratio of
// the medians, for the two of a round were under the same load.
func ratio(a, b []float64) float64 { return median(ratios(a, b)) }

// ratios are a/b, round by round.
func ratios(a, b []float64) (each []float64) {
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			each = append(each, a[i]/b[i])
		}
	}
	return each
}

// minus is a-b, round by round.
func minus(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] - b[i]
	}
	return out
}

// lowest is the contestant with the lowest median among those that may count.
func (s series) lowest(counts func(name string) bool) string {
	best := ""
	for name, values := range s {
		if !counts(name) {
			continue
		}
		if m := median(values); best == "" || m < median(s[best]) || m == median(s[best]) && name < best {
			best = name
		}
	}
	return best
}

// expense is what a check allocates, everything behind it included.
type expense struct{ allocs, bytes float64 }

// expenseOf is the mean of many checks, rounded down, as something else may allocate
// meanwhile.
func expenseOf(c contestant, subject string, runs int) (expense, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ch := c.caller()
	var before, after runtime.MemStats
	for i := range runs + 1 {
		if i == 1 { // the first may set things up
			runtime.ReadMemStats(&before)
		}
		if err := ch.pass(subject); err != nil {
			return expense{}, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	runtime.ReadMemStats(&after)
	return expense{
		allocs: float64((after.Mallocs - before.Mallocs) / uint64(runs)),
		bytes:  float64((after.TotalAlloc - before.TotalAlloc) / uint64(runs)),
	}, nil
}

// admitted is how many of n checks of a fresh subject passed.
func admitted(c contestant, subject string, n int) (passed int, err error) {
	ch := c.caller()
	for range n {
		ok, err := ch(subject)
		if err != nil {
			return passed, fmt.Errorf("%s: %w", c.name, err)
		}
		if ok {
			passed++
		}
	}
	return passed, nil
}

// asserts finds out whether a contestant with the tight limit keeps it: 20 of
// 100 pass. Without it a measurement would be worth nothing.
func asserts(c contestant, subject string) error {
	const asked = 100
	passed, err := admitted(c, subject, asked)
	if err != nil {
		return err
	}
	// Some count the unit that comes back meanwhile, or allow one on top.
	if most := int(tight.burst) + 1; passed < int(tight.burst) || passed > most {
		return fmt.Errorf("%s: admitted %d of %d; want %d or %d", c.name, passed, asked, tight.burst, most)
	}
	return nil
}

// assertAll asserts that all contestants that are limiters keep the tight limit, each for
// a subject of its own that begins with this text.
func assertAll(cs []contestant, text string) error {
	for i, c := range cs {
		if isCommand(c.name) {
			continue
		}
		if err := asserts(c, fmt.Sprint(text, i, c.name)); err != nil {
			return err
		}
	}
	return nil
}
