package redisstore_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// One caller, and many, on one Redis.
func BenchmarkStore(b *testing.B) {
	subjects := make([]string, 10_000)
	for i := range subjects {
		subjects[i] = fmt.Sprint("user:", i)
	}
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			r := settled(b, openStore(b, redistest.Start(b).URL(), config{Timeout: patience}))
			b.ReportAllocs()
			b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))

			one := func(i int) {
				c := plenty
				c.Subject = subjects[i%len(subjects)]
				if _, err := gcra.Take(b.Context(), r, c); err != nil {
					b.Error(err)
				}
			}

			if callers == 1 {
				for i := 0; b.Loop(); i++ {
					one(i)
				}
				return
			}

			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i += 17 {
					one(i)
				}
			})
		})
	}
}
