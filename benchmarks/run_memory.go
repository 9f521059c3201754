package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// setting is how a store in memory is asked.
type setting struct {
	keys    int
	callers int
}

func (s setting) String() string {
	return fmt.Sprintf("%s, %s", keysName(s.keys), coresName(s.callers))
}

func keysName(n int) string {
	if n == 1 {
		return "hot key"
	}
	return fmt.Sprintf("%s keys", thousands(int64(n)))
}

func coresName(n int) string {
	if n == 1 {
		return "1 core"
	}
	return "all cores"
}

const keysInMemory = 100_000

// cores is how many goroutines ask at once, at most. On one core there is one
// setting less to tell apart, but the rows stay.
var cores = runtime.GOMAXPROCS(0)

func runMemory(ctx context.Context, b *bench) error {
	b.memory, b.memAll = map[setting]samples{}, map[string]expense{}
	strict, err := memoryContestants(tight)
	if err != nil {
		return err
	}
	defer closeAll(strict)
	if err := assertAll(strict, "tight:"); err != nil {
		return err
	}
	slice := b.slice(40*time.Millisecond, 25*time.Millisecond)
	for _, keys := range []int{1, keysInMemory} {
		l := roomy
		if keys == 1 {
			l = endless
		}
		cs, err := memoryContestants(l)
		if err != nil {
			return err
		}
		list := subjects(keys)
		for _, c := range cs {
			if err := touch(c, list); err != nil {
				return err
			}
			if b.memAll[c.name], err = expenseOf(c, list[0], 1000); err != nil {
				return err
			}
		}
		list = shuffled(list)
		for _, n := range []int{1, cores} {
			at := setting{keys, n}
			b.say("memory: %v", at)
			b.memory[at], err = interleave(cs, b.roundsOr(7, 5), func(c contestant) (sample, error) {
				if err := ctx.Err(); err != nil {
					return sample{}, err
				}
				return drive(c, n, slice, list)
			})
			if err != nil {
				return err
			}
		}
		closeAll(cs)
	}
	return nil
}

// shuffled returns the list in another order: clients do not come in the order in which
// their buckets were made, and so lie in memory.
func shuffled(list []string) []string {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// touch asks about every subject once, so that no measurement meets a new one.
func touch(c contestant, list []string) error {
	ch := c.caller()
	for _, s := range list {
		if err := ch.pass(s); err != nil {
			return fmt.Errorf("%s: %s: %w", c.name, s, err)
		}
	}
	return nil
}
