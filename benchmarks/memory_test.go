package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// BenchmarkMemory makes checks in memory, by one goroutine and by one for each core: of one key,
// of many whose buckets are not full, and of known ones whose buckets have refilled since.
func BenchmarkMemory(b *testing.B) {
	for _, c := range inTurn(inMemory) {
		b.Run("limiter="+c.name, func(b *testing.B) {
			d := deployment{cleanup: b.Cleanup}
			fast, slow := c.start(b, d, endless), c.start(b, d, roomy)
			for _, keys := range []struct {
				name   string
				n      int
				caller func() check
			}{{"keys", 1, fast}, {"keys", 100_000, slow}, {"full", 1000, fast}, {"full", 100_000, fast}} {
				list := subjects(keys.n)
				touch(b, keys.caller, 1, list)

				// Clients do not come in the order in which their buckets were made, and so lie in memory.
				rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })

				for _, cores := range []struct {
					name    string
					callers int
				}{{"one", 1}, {"all", runtime.GOMAXPROCS(0)}} {
					b.Run(fmt.Sprintf("%s=%d/cores=%s", keys.name, keys.n, cores.name), func(b *testing.B) {
						measureInMemory(b, keys.caller, cores.callers, list)
					})
				}
			}
		})
	}
}
