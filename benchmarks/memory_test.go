package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

const keysInMemory = 100_000

// BenchmarkMemory makes checks in memory, by one goroutine and by one for each core.
func BenchmarkMemory(b *testing.B) {
	for _, c := range inTurn(inMemory) {
		b.Run("limiter="+c.name, func(b *testing.B) {
			d := deployment{cleanup: b.Cleanup}
			hot := c.start(b, d, endless)
			many, list := c.start(b, d, roomy), subjects(keysInMemory)
			touch(b, many, 1, list)

			// Clients do not come in the order in which their buckets were made, and so lie in memory.
			rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })

			for _, keys := range []struct {
				caller func() check
				list   []string
			}{{hot, []string{"hot"}}, {many, list}} {
				for _, cores := range []struct {
					name    string
					callers int
				}{{"one", 1}, {"all", runtime.GOMAXPROCS(0)}} {
					b.Run(fmt.Sprintf("keys=%d/cores=%s", len(keys.list), cores.name), func(b *testing.B) {
						measureInMemory(b, keys.caller, cores.callers, keys.list)
					})
				}
			}
		})
	}
}
