package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// BenchmarkLone is a check by one caller with default settings. It and the script of TIME, GET
// and SET on a client with the same options take turns, call by call, so that other load on
// the machine affects both.
func BenchmarkLone(b *testing.B) {
	server := redistest.Start(b)
	client := func(options redis.Options) *redis.Client {
		options.Addr = server.Addr
		c := redis.NewClient(&options)
		b.Cleanup(func() { _ = c.Close() })
		return c
	}

	fit := client(redis.Options{ContextTimeoutEnabled: true, PoolTimeout: 50 * time.Millisecond})
	plain := client(redis.Options{})
	opened, options, err := openStore(server.URL(), 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = opened.Close() })

	lone(b, "Open", client(*options), storeCaller(opened, window)())
	lone(b, "New", fit, storeCaller(newStore(fit, 0, 0), window)())
	lone(b, decidingScript, fit, decide(fit, window))
	lone(b, "New_on_a_plain_client", plain, storeCaller(newStore(plain, 0, 0), window)())
	lone(b, slidingLog, fit, storeCaller(newLog(fit, 0), window)())
}

// lone reports the medians of a check and of the script, and their ratio.
func lone(b *testing.B, name string, client *redis.Client, check check) {
	ctx, list := context.Background(), subjects(1000)
	calls := []func(string) error{
		func(subject string) error { return floor.Run(ctx, client, []string{"floor:" + subject}).Err() },
		check.pass,
	}

	b.Run("limiter="+name, func(b *testing.B) {
		var took [2][]time.Duration
		failed := 0
		for i := 0; b.Loop(); i++ {
			first := rand.IntN(2)
			for _, j := range []int{first, 1 - first} {
				begin := time.Now()
				err := calls[j](list[i%len(list)])
				took[j] = append(took[j], time.Since(begin))
				if err == nil {
					continue
				}
				if failed++; failed > 10+i/100 { // on a busy machine, a store may not wait so long
					b.Fatal(err)
				}
			}
		}

		for _, t := range took {
			slices.Sort(t)
		}
		script, ours := took[0][len(took[0])/2], took[1][len(took[1])/2]
		b.ReportMetric(float64(ours), "ns/op")
		b.ReportMetric(float64(script), "script-ns/op")
		b.ReportMetric(float64(ours)/float64(script), "x-script")
	})
}

// BenchmarkOpenLoop is the latency of checks that come at a rate, whether or not earlier ones
// have their answers: as requests do. An op is a second of them. They come in a burst each
// millisecond, and their time counts from when the burst is due.
func BenchmarkOpenLoop(b *testing.B) {
	for _, c := range []contestant{{ours, newOurs}, {redisRate, newRedisRate}, {redisRateAP, newRedisRateAP}} {
		b.Run("limiter="+c.name, func(b *testing.B) {
			d := oneRedis(b)
			caller, list := c.start(b, d, roomy), subjects(manyKeys)
			touch(b, caller, manyCallers, list)
			for _, rate := range []int{20_000, 40_000} {
				b.Run(fmt.Sprintf("rate=%d", rate), func(b *testing.B) {
					openLoop(b, caller, rate, list)
				})
			}
		})
	}
}

func openLoop(b *testing.B, caller func() check, rate int, list []string) {
	const burst = time.Millisecond
	each := rate / int(time.Second/burst)
	n := b.N * rate
	if testing.Short() {
		n /= 10
	}
	took := make([]time.Duration, n)
	failed := make(chan error, len(took))

	begin := time.Now()
	for i := range took {
		due := begin.Add(time.Duration(i/each) * burst)
		if i%each == 0 {
			time.Sleep(time.Until(due))
		}
		go func() {
			err := caller().pass(list[i%len(list)])
			took[i] = time.Since(due)
			failed <- err
		}()
	}

	for range took {
		if err := <-failed; err != nil {
			b.Fatal(err)
		}
	}

	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
	b.ReportMetric(float64(took[len(took)*999/1000]), "p99.9-ns")
	b.ReportMetric(0, "ns/op")
}
