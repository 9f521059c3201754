package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed-e377111c/ratelimit/inflight"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// mostInFlight is reached by no key here.
const mostInFlight = 100

// BenchmarkInFlight acquires and releases a slot, which are two calls of Redis, beside one check of redis_rate.
func BenchmarkInFlight(b *testing.B) {
	redistest.Need(b)
	for _, c := range inTurn([]contestant{{ours, newInFlight}, {redisRate, newRedisRate}, {floorScript, plainCommands[0].build}}) {
		b.Run("limiter="+c.name, func(b *testing.B) {
			d := oneRedis(b)
			caller, err := c.build(d, roomy)
			if err != nil {
				b.Fatal(err)
			}
			list := subjects(manyKeys)
			touch(b, caller, 16, list)
			for _, callers := range []int{1, 16} {
				b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
					redistest.ResetStats(b, d.admin())
					measureOn(b, d, caller, callers, list)
					d.reportCommands(b)
				})
			}
		})
	}
}

// reportCommands reports how long Redis took for a call of each command, by its own measurement.
func (d deployment) reportCommands(b *testing.B) {
	b.Helper()
	stats := info(b, d.admin(), "commandstats")
	for _, command := range []string{"evalsha", "time", "get", "set", "hmget", "hset", "pexpire"} {
		var calls int
		var total, each float64
		if _, err := fmt.Sscanf(field(stats, "cmdstat_"+command), "calls=%d,usec=%f,usec_per_call=%f", &calls, &total, &each); err == nil {
			b.ReportMetric(each*1000, command+"-ns/call")
		}
	}
}

func newInFlight(d deployment, _ limit) (func() check, error) {
	l, err := inflight.New(d.dial(), inflight.Config{Timeout: patience})
	if err != nil {
		return nil, err
	}
	d.cleanup(func() { _ = l.Close(context.Background()) })
	return acquireAndRelease(l), nil
}

func acquireAndRelease(l *inflight.Limiter) func() check {
	ctx := context.Background()
	return shared(func(subject string) (bool, error) {
		slot, err := l.Acquire(ctx, subject, mostInFlight)
		slot.Release()
		return err == nil, err
	})
}

// BenchmarkInFlightMemory is the same in memory, beside a channel that is one semaphore for all keys.
func BenchmarkInFlightMemory(b *testing.B) {
	l, err := inflight.NewMemory(inflight.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close(context.Background()) })
	semaphore := make(chan struct{}, mostInFlight)

	for name, caller := range map[string]func() check{
		ours: acquireAndRelease(l),
		"semaphore": shared(func(string) (bool, error) {
			semaphore <- struct{}{}
			<-semaphore
			return true, nil
		}),
	} {
		b.Run("limiter="+name, func(b *testing.B) { measureInMemory(b, caller, 1, subjects(1000)) })
	}
}
