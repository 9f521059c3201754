package redistest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Script is TIME, GET and SET of a key in one script: what any limiter with the clock of Redis does.
func Script(client redis.UniversalClient) func(subject string) error {
	script := redis.NewScript("redis.call('TIME') redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], '1234567890123456') return 1")
	return func(subject string) error {
		return script.Run(context.Background(), client, []string{"{" + subject + "}:script"}).Err()
	}
}

// Set is a SET of a key.
func Set(client redis.UniversalClient) func(subject string) error {
	return func(subject string) error {
		return client.Set(context.Background(), "{"+subject+"}:set", "1234567890123456", 0).Err()
	}
}

// Lone is a benchmark of a caller that is alone. It calls base and call in turn, so that other load on
// the machine affects both, and reports the median of call in microseconds and as a multiple of base.
func Lone(b *testing.B, name string, base, call func(subject string) error) {
	b.Helper()
	subjects := make([]string, 1000)
	for i := range subjects {
		subjects[i] = fmt.Sprint("user:", i)
	}
	var took [2][]time.Duration
	failed := 0
	for i := 0; b.Loop(); i++ {
		for j, f := range []func(string) error{base, call} {
			start := time.Now()
			if err := f(subjects[i%len(subjects)]); err == nil {
				took[j] = append(took[j], time.Since(start))
			} else if failed++; failed > 10+i/100 { // a loaded machine may exceed the Timeout of a store
				b.Fatal(err)
			}
		}
	}
	if len(took[0]) == 0 || len(took[1]) == 0 {
		b.Fatal("no call was answered")
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Nanoseconds()) / 1000
	}
	b.ReportMetric(median(took[1]), "µs")
	b.ReportMetric(median(took[1])/median(took[0]), "/"+name)
	b.ReportMetric(0, "ns/op")
}
