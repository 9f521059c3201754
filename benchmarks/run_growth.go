package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// growth is what a check costs while a number of keys are alive.
type growth struct {
	keys        int
	nanos       float64 // from one check to the next
	cpuMicros   float64 // of Redis for a check
	bytesPerKey float64
}

// runGrowth finds out whether a check costs the same however many keys there
// are. All of them are alive: each has been charged, and is full again hours
// later.
func runGrowth(ctx context.Context, b *bench) error {
	if err := b.growMemory(ctx); err != nil {
		return err
	}
	return b.growRedis(ctx)
}

// sizes are all of them, or in a short run all but the last.
func (b *bench) sizes(all ...int) []int {
	switch {
	case b.brief:
		return all[:2]
	case b.short:
		return all[:len(all)-1]
	}
	return all
}

// enoughKeys is how many it takes for their bytes to stand out from what else
// comes and goes in memory.
const enoughKeys = 100_000

// checksOfGrowth is how many checks a round makes: few enough that rounds of
// all sizes together do not use the smallest up.
const checksOfGrowth = 50_000

func (b *bench) growMemory(ctx context.Context) error {
	sizes := b.sizes(1, 1000, 10_000, 100_000, 1_000_000, 10_000_000)
	most := sizes[len(sizes)-1]
	// Keys spread over the parts of a Memory by chance, so there is room for more.
	store := &gcra.Memory{Capacity: most + most/4}
	hot := storeCaller(gcra.NewMemory(), endless)()
	before := heap()
	ch, have := storeCaller(store, lasting)(), 0
	for _, n := range sizes {
		b.say("memory: %s", keysName(n))
		for ; have < n; have++ {
			if have%100_000 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if err := ch.pass(subject(have)); err != nil {
				return fmt.Errorf("key %d: %w", have, err)
			}
		}
		asked := ch
		if n == 1 {
			asked = hot // one key would be used up
		}
		var rounds []float64
		for range 6 {
			nanos, err := askRandomly(asked, n, checksOfGrowth)
			if err != nil {
				return err
			}
			rounds = append(rounds, nanos)
		}
		g := growth{keys: n, nanos: median(rounds[1:])}
		if n >= enoughKeys {
			g.bytesPerKey = float64(heap()-before) / float64(n)
		}
		b.memUp = append(b.memUp, g)
	}
	runtime.KeepAlive(store)
	return nil
}

// askRandomly asks about keys all over the place. The subject is written where
// the last one was, so that fetching the names of ten million clients from
// memory is not measured; Memory keeps hashes, not subjects.
func askRandomly(ch check, n, checks int) (nanos float64, err error) {
	b := []byte(subject(0))
	name := unsafe.String(unsafe.SliceData(b), len(b))
	at := 0
	begin := time.Now()
	for range checks {
		at = (at + 1_618_033_987) % n
		writeSubject(b, at)
		if err := ch.pass(name); err != nil {
			return 0, fmt.Errorf("%s of %d: %w", name, n, err)
		}
	}
	return float64(time.Since(begin).Nanoseconds()) / float64(checks), nil
}

// heap is what is alive on the heap.
func heap() int64 {
	// The second empties what pools hold on to over the first.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (b *bench) growRedis(ctx context.Context) error {
	sizes := b.sizes(1000, 10_000, 100_000, 1_000_000)
	if err := b.redis.admin().FlushAll(ctx).Err(); err != nil {
		return err
	}
	cs, err := build(b.redis, lasting, newOurs)
	if err != nil {
		return err
	}
	c := cs[0]
	defer c.close()
	const callers = 256
	list := subjects(sizes[len(sizes)-1])
	// Connections take memory too, so they are there before.
	if err := touchTogether(ctx, c, slices.Repeat([]string{"first"}, callers), callers); err != nil {
		return err
	}
	empty, err := b.redis.memory(ctx)
	if err != nil {
		return err
	}
	have := 0
	for _, n := range sizes {
		b.say("Redis: %s", keysName(n))
		if err := touchTogether(ctx, c, list[have:n], callers); err != nil {
			return err
		}
		have = n
		full, err := b.redis.memory(ctx)
		if err != nil {
			return err
		}
		var nanos, cpu []float64
		for range b.roundsOr(5, 3) {
			s, err := withCPU(ctx, c, callers, b.slice(80*time.Millisecond, 80*time.Millisecond), list[:n])
			if err != nil {
				return err
			}
			nanos, cpu = append(nanos, s.nanos()), append(cpu, s.cpuMicros())
		}
		g := growth{keys: n, nanos: median(nanos), cpuMicros: median(cpu)}
		if n >= enoughKeys {
			g.bytesPerKey = float64(full-empty) / float64(n)
		}
		b.redisUp = append(b.redisUp, g)
	}
	return b.redis.admin().FlushAll(ctx).Err()
}

// touchTogether asks about every subject once, by many callers.
func touchTogether(ctx context.Context, c contestant, list []string, callers int) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range callers {
		ch := c.caller()
		wg.Go(func() {
			for failed.Load() == nil && ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(list) {
					return
				}
				if err := ch.pass(list[i]); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}
