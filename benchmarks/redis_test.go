package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// manyKeys is how many subjects take turns. None is asked by two callers at
// once, which is what the keys of an API look like.
const manyKeys = 10_000

// manyCallers keep all servers busy.
const manyCallers = 256

// onRedis are the contestants that one Redis can have.
var onRedis = slices.Concat(limitersOnRedis, plainCommands, native)

// BenchmarkRedis makes checks of 10,000 keys on one Redis.
func BenchmarkRedis(b *testing.B) {
	eachOnRedis(b, onRedis, roomy, subjects(manyKeys), 1, 16, manyCallers)
}

// BenchmarkTLS is BenchmarkRedis over TLS.
func BenchmarkTLS(b *testing.B) {
	eachOn(b, overTLS, []contestant{{ours, newOurs}, {redisRate, newRedisRate}}, roomy, subjects(manyKeys), 16, manyCallers)
}

// BenchmarkHotKey makes checks of one key.
func BenchmarkHotKey(b *testing.B) {
	eachOnRedis(b, onRedis, endless, []string{"hot"}, 16, manyCallers)
}

// BenchmarkWindow is a strict window (outbound/slidinglog) beside GCRA and a plain SET.
func BenchmarkWindow(b *testing.B) {
	contestants := []contestant{{ours, newOurs}, {slidingLog, newSlidingLog}, {goRedisSet, command(set)}}
	eachOnRedis(b, contestants, window, subjects(200), 1, 16)
}

// BenchmarkRateAndQuota takes from a rate and a quota in one admission.
func BenchmarkRateAndQuota(b *testing.B) {
	for _, c := range withQuota(tight) {
		c.mustKeep(b, oneRedis(b), roomy)
	}
	eachOnRedis(b, withQuota(roomy), roomy, subjects(manyKeys), manyCallers)
}

// eachOnRedis measures contestants one after the other, each on a Redis of its own.
func eachOnRedis(b *testing.B, contestants []contestant, l limit, list []string, levels ...int) {
	eachOn(b, oneRedis, contestants, l, list, levels...)
}

func eachOn(b *testing.B, start func(*testing.B) deployment, contestants []contestant, l limit, list []string, levels ...int) {
	for _, c := range inTurn(contestants) {
		b.Run("limiter="+c.name, func(b *testing.B) {
			d := start(b)
			if (c.name == nativeGCRA || c.name == nativeGoGCRA) && !d.hasGCRA() {
				b.Skip("the server has no command GCRA")
			}
			several(b, d, c.start(b, d, l), list, levels...)
		})
	}
}

// several measures with each number of callers.
func several(b *testing.B, d deployment, caller func() check, list []string, levels ...int) {
	touch(b, caller, slices.Max(levels), list)
	for _, callers := range levels {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			b.ReportAllocs()
			measureOn(b, d, caller, callers, list)
		})
	}
}

// BenchmarkCluster makes checks on three masters with a replica each.
func BenchmarkCluster(b *testing.B) {
	redistest.Need(b)
	d := sixNodes(b)
	for _, c := range []contestant{{ours, newOurs}, {redisRate, newRedisRate}, {goRedisSetAP, newGoRedisSetAP}} {
		b.Run("limiter="+c.name, func(b *testing.B) {
			several(b, d, c.start(b, d, roomy), subjects(manyKeys), manyCallers)
		})
	}
}

// BenchmarkRing compares three servers with one. With 768 callers, each of the three has as
// many as the one has.
func BenchmarkRing(b *testing.B) {
	c := contestant{ours, newOurs}
	b.Run("limiter="+ours+"/servers=1", func(b *testing.B) {
		d := oneRedis(b)
		several(b, d, c.start(b, d, roomy), subjects(manyKeys), manyCallers)
	})
	b.Run("limiter="+ours+"/servers=3", func(b *testing.B) {
		d := ringOfThree(b)
		several(b, d, c.start(b, d, roomy), subjects(manyKeys), manyCallers, 3*manyCallers)
	})
}

// BenchmarkDenied makes checks of a key that the store knows to be used up.
func BenchmarkDenied(b *testing.B) {
	redistest.Need(b)
	d := oneRedis(b)
	b.Run("limiter="+ours, func(b *testing.B) {
		ch := storeCaller(newStore(d.dial(), patience, month), tight)()
		if err := keeps(ch, "denied"); err != nil {
			b.Fatal(err)
		}

		b.ReportAllocs()
		before := d.commands(b)
		for b.Loop() {
			if ok, err := ch("denied"); ok || err != nil {
				b.Fatalf("admitted is %v, error %v; want a denial", ok, err)
			}
		}
		b.ReportMetric(float64(d.commands(b)-before-1)/float64(b.N), "commands/op") // one has counted them
	})
}

// BenchmarkKeyMemory reports the MEMORY USAGE of a key in Redis after some checks.
func BenchmarkKeyMemory(b *testing.B) {
	for _, c := range append(slices.Clone(limitersOnRedis), contestant{slidingLog, newSlidingLog}) {
		b.Run("limiter="+c.name, func(b *testing.B) {
			d := oneRedis(b)
			caller, err := c.build(d, lasting)
			if err != nil {
				b.Fatal(err)
			}

			for _, checks := range []int{1, 1000} {
				subject := subject(checks)
				touch(b, caller, 1, slices.Repeat([]string{subject}, checks))
				b.Run(fmt.Sprintf("checks=%d", checks), func(b *testing.B) {
					b.ReportMetric(float64(d.usage(b, subject)), "B/key")
					b.ReportMetric(0, "ns/op")
				})
			}
		})
	}
}
