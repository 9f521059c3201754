package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// BenchmarkDistance is the latency of checks on a Redis some milliseconds away, in round trips. They come at a rate with
// random gaps, whether or not earlier ones have their answers, and their time counts from when they are due. The
// contestants take turns four times for a quarter of a second each. The row PING is one command at a time: what the proxy
// adds by itself.
func BenchmarkDistance(b *testing.B) {
	for _, roundTrip := range []time.Duration{500 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		b.Run("rtt="+roundTrip.String(), func(b *testing.B) {
			server := redistest.Start(b)
			d := behind(b, farAway(b, server.Addr, roundTrip), server)
			pings(b, d, roundTrip)

			var all []*walker
			for _, c := range []contestant{{ours, newOpened}, {redisRate, newRedisRate}, {redisRateAP, newRedisRateAP}, {rueidisGCRA, newRueidisGCRA}} {
				all = append(all, &walker{name: c.name, caller: c.start(b, d, roomy)})
			}
			for _, rate := range []int{2_000, 10_000} {
				b.Run(fmt.Sprintf("rate=%d", rate), func(b *testing.B) {
					inTurns(b, d, all, rate, float64(roundTrip), "rtt")
				})
			}
		})
	}
}

// BenchmarkFifty is fifty stores, each with a client of its own, that make 5,000 checks a second together.
func BenchmarkFifty(b *testing.B) {
	for _, roundTrip := range []time.Duration{0, 5 * time.Millisecond} {
		b.Run("rtt="+roundTrip.String(), func(b *testing.B) {
			server := redistest.Start(b)
			d := universal(b, server)
			if roundTrip > 0 {
				d = behind(b, farAway(b, server.Addr, roundTrip), server)
			}

			stores := make([]func() check, 50)
			for i := range stores {
				stores[i] = must(newOpened(d, roomy))
			}
			fifty := &walker{name: ours, caller: func() check { return stores[rand.IntN(len(stores))]() }}
			// The first call on a connection takes a round trip more, and the pools grow for some seconds.
			if !testing.Short() {
				randomGaps(b, fifty.caller, 5_000, 50_000, subjects(manyKeys))
			}
			inTurns(b, d, []*walker{fifty}, 5_000, 1, "ns")
		})
	}
}

// newOpened is a store of Open, which dials ahead.
func newOpened(d deployment, l limit) (func() check, error) {
	store, _, err := openStore("redis://"+d.addr, patience)
	if err != nil {
		return nil, err
	}
	d.cleanup(func() { _ = store.Close() })
	return storeCaller(store, l), nil
}

// A walker is a contestant at a distance, and what its checks took.
type walker struct {
	name           string
	caller         func() check
	took           []time.Duration
	redis, clients time.Duration // CPU time
}

// inTurns has all make checks, and reports the latencies in units of so many nanoseconds.
func inTurns(b *testing.B, d deployment, all []*walker, rate int, unit float64, name string) {
	turns, each := 4, rate/4
	if testing.Short() {
		turns, each = 1, 20
	}
	list := subjects(manyKeys)
	for _, w := range all {
		w.took, w.redis, w.clients = nil, 0, 0
		randomGaps(b, w.caller, rate, 4*each, list) // it connects, and learns the distance
	}
	for range turns {
		for _, w := range all {
			redisBefore, before := d.cpu(b), processCPU()
			w.took = append(w.took, randomGaps(b, w.caller, rate, each, list)...)
			w.clients += processCPU() - before
			w.redis += d.cpu(b) - redisBefore
		}
	}

	for _, w := range all {
		b.Run("limiter="+w.name, func(b *testing.B) {
			slices.Sort(w.took)
			for _, p := range []int{50, 90, 99} {
				b.ReportMetric(float64(w.took[len(w.took)*p/100])/unit, fmt.Sprintf("p%d-%s", p, name))
			}
			b.ReportMetric(float64(w.redis)/float64(len(w.took)), "redis-ns/op")
			b.ReportMetric(float64(w.clients)/float64(len(w.took)), "clients-ns/op")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// randomGaps makes n checks at a rate, and returns what each took.
func randomGaps(b *testing.B, caller func() check, rate, n int, list []string) []time.Duration {
	// Go's timers round to milliseconds while nothing else happens.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)

	took, failed := make([]time.Duration, n), make(chan error, n)
	due := time.Now()
	for i := range took {
		due = due.Add(time.Duration(rand.ExpFloat64() * float64(time.Second) / float64(rate)))
		if wait := time.Until(due); wait > 0 {
			sleep := unix.NsecToTimespec(int64(wait))
			_ = unix.Nanosleep(&sleep, nil)
		}
		check, due := caller(), due
		go func() {
			err := check.pass(list[rand.IntN(len(list))])
			took[i] = time.Since(due)
			failed <- err
		}()
	}

	for range took {
		if err := <-failed; err != nil {
			b.Fatal(err)
		}
	}
	return took
}

// pings calibrates the proxy.
func pings(b *testing.B, d deployment, roundTrip time.Duration) {
	client, ctx := d.dial().(*redis.Client), context.Background()
	took := make([]time.Duration, 100)
	for i := range took {
		begin := time.Now()
		if err := client.Ping(ctx).Err(); err != nil {
			b.Fatal(err)
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	b.Run("limiter=PING", func(b *testing.B) {
		b.ReportMetric(float64(took[50])/float64(roundTrip), "p50-rtt")
		b.ReportMetric(float64(took[90])/float64(roundTrip), "p90-rtt")
		b.ReportMetric(0, "ns/op")
	})
}

// processCPU is the CPU time that this process has used.
func processCPU() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err) // every Linux knows it
	}
	return time.Duration(t.Nano())
}
