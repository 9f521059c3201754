package slidinglog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/gcra/slidinglog"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// BenchmarkCheck measures a check by one caller on existing keys, and a plain SET for comparison. The
// three alternate, so that other load affects all of them and the ratios are of one run.
func BenchmarkCheck(b *testing.B) {
	client := redistest.Start(b).Client()
	log, cell := slidinglog.NewRedis(client), redisstore.New(client)
	log.Timeout, cell.Timeout = patience, patience
	ctx := context.Background()
	subjects := make([]string, 1000)
	for i := range subjects {
		subjects[i] = fmt.Sprint("user:", i)
	}
	limit := gcra.PerMinute(100)
	check := func(s gcra.Store) func(string) error {
		charges := make([]gcra.Charge, 1)
		return func(subject string) error {
			charges[0] = gcra.Charge{Subject: subject, Policy: "p", Limit: limit, Cost: 1}
			_, err := s.Take(ctx, charges)
			return err
		}
	}
	contestants := []struct {
		unit string
		do   func(string) error
		took time.Duration
	}{
		{unit: "SET", do: func(subject string) error { return client.Set(ctx, subject, "1", time.Minute).Err() }},
		{unit: "GCRA", do: check(cell)},
		{unit: "log", do: check(log)},
	}
	i := 0
	for b.Loop() {
		for c := range contestants {
			start := time.Now()
			if err := contestants[c].do(subjects[i%len(subjects)]); err != nil {
				b.Fatal(err)
			}
			contestants[c].took += time.Since(start)
		}
		i++
	}
	set := contestants[0].took
	for _, c := range contestants {
		b.ReportMetric(float64(c.took.Nanoseconds())/1000/float64(i), c.unit+"-µs")
		if c.took != set {
			b.ReportMetric(float64(c.took)/float64(set), c.unit+"/SET")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLone measures a check by one caller with default settings, as a multiple of the shortest
// script that a limiter could send on the same client.
func BenchmarkLone(b *testing.B) {
	server := redistest.Start(b)
	for name, client := range map[string]*redis.Client{"SettingsOfOpen": openedClient(b, server.URL()), "Plain": server.Client()} {
		b.Run(name, func(b *testing.B) {
			log, charges := slidinglog.NewRedis(client), make([]gcra.Charge, 1)
			redistest.Lone(b, "script", redistest.Script(client), func(subject string) error {
				charges[0] = gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.PerMinute(1_000_000), Cost: 1}
				_, err := log.Take(context.Background(), charges)
				return err
			})
		})
	}
}

// BenchmarkMemory measures the memory of a key in Redis, by the number of charges in its window.
func BenchmarkMemory(b *testing.B) {
	client := redistest.Start(b).Client()
	ctx := context.Background()
	log, cell := slidinglog.NewRedis(client), redisstore.New(client)
	log.Timeout, cell.Timeout, cell.NoDenialCache = patience, patience, true
	for _, n := range []int64{1, 10, 100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var sizes [2]int64
			for b.Loop() {
				for i, s := range []gcra.Store{cell, log} {
					for range n {
						charge := gcra.Charge{Subject: "user:1234", Policy: fmt.Sprint("of", n), Limit: gcra.PerDay(10_000), Cost: 1}
						if _, err := gcra.Take(ctx, s, charge); err != nil {
							b.Fatal(err)
						}
					}
					key := fmt.Sprintf("%s{user:1234}:of%d", []string{"rl:", "sl:"}[i], n)
					sizes[i] = usage(b, client, key)
					client.Del(ctx, key)
				}
			}
			b.ReportMetric(float64(sizes[0]), "GCRA-B")
			b.ReportMetric(float64(sizes[1]), "log-B")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// usage returns the memory of a key, with all its members counted.
func usage(b *testing.B, client *redis.Client, key string) int64 {
	b.Helper()
	n, err := client.MemoryUsage(context.Background(), key, 0).Result()
	if err != nil {
		b.Fatal(err)
	}
	return n
}
