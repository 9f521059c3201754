package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
)

// manyKeys is how many subjects take turns. None is asked by two callers at
// once, which is what the keys of an API look like.
const manyKeys = 10_000

// levels are how many callers ask at once.
var levels = []int{1, 4, 16, 64, 256}

// levelsToRun are those that the chosen rows need, or all.
func (b *bench) levelsToRun() []int {
	if b.row == nil {
		return levels
	}
	var out []int
	for _, t := range b.targets() {
		if t.callers > 0 && !slices.Contains(out, t.callers) {
			out = append(out, t.callers)
		}
	}
	slices.Sort(out)
	return out
}

// asserted asserts that each builder's contestant limits, and builds those with the
// limit.
func asserted(d deployment, l limit, builders ...builder) ([]contestant, error) {
	strict, err := build(d, tight, builders...)
	if err != nil {
		return nil, err
	}
	defer closeAll(strict)
	if err := assertAll(strict, fmt.Sprint("tight:", tightRuns.Add(1), ":")); err != nil {
		return nil, err
	}
	return build(d, l, builders...)
}

// tightRuns numbers the calls of assertAll on Redis, as each needs fresh subjects.
var tightRuns atomic.Int64

// round gives the contestants turns, and asks their servers for the CPU time that they
// used meanwhile.
func round(ctx context.Context, cs []contestant, rounds, callers int, slice time.Duration, list []string) (samples, error) {
	return interleave(cs, rounds, func(c contestant) (sample, error) {
		if err := ctx.Err(); err != nil {
			return sample{}, err
		}
		return withCPU(ctx, c, callers*max(c.crowd, 1), slice, list)
	})
}

// withCPU drives a contestant and asks its servers what they used meanwhile.
func withCPU(ctx context.Context, c contestant, callers int, slice time.Duration, list []string) (sample, error) {
	before, err := c.on.cpu(ctx)
	if err != nil {
		return sample{}, err
	}
	s, err := drive(c, callers, slice, list)
	if err != nil {
		return sample{}, err
	}
	after, err := c.on.cpu(ctx)
	s.redisCPU = after - before
	return s, err
}

func runCallers(ctx context.Context, b *bench) error {
	builders, err := redisContestants(ctx, b.redis)
	if err != nil {
		return err
	}
	cs, err := asserted(b.redis, roomy, builders...)
	if err != nil {
		return err
	}
	defer closeAll(cs)
	list := subjects(manyKeys)
	b.callers = map[int]samples{}
	slice := b.slice(100*time.Millisecond, 60*time.Millisecond)
	for _, n := range b.levelsToRun() {
		rounds := b.roundsOr(3, 2)
		if slices.ContainsFunc(targets, func(t target) bool { return t.callers == n }) {
			rounds = b.roundsOr(10, 4) // a verdict hangs on these
		}
		b.say("Redis, %s: callers %d, rounds %d", keysName(manyKeys), n, rounds)
		if b.callers[n], err = round(ctx, cs, rounds, n, slice, list); err != nil {
			return err
		}
	}
	b.redisAll = map[string]expense{}
	for _, c := range cs {
		if b.redisAll[c.name], err = expenseOf(c, list[0], 500); err != nil {
			return err
		}
	}
	return nil
}

// runHot has all callers ask about one key.
func runHot(ctx context.Context, b *bench) error {
	builders, err := redisContestants(ctx, b.redis)
	if err != nil {
		return err
	}
	cs, err := asserted(b.redis, endless, builders...)
	if err != nil {
		return err
	}
	defer closeAll(cs)
	b.hot = map[int]samples{}
	slice := b.slice(100*time.Millisecond, 50*time.Millisecond)
	for _, n := range []int{16, 256} {
		b.say("Redis, hot key: callers %d", n)
		if b.hot[n], err = round(ctx, cs, b.roundsOr(3, 2), n, slice, []string{"hot"}); err != nil {
			return err
		}
	}
	return nil
}

// denials are what it takes to deny a key that is known to be used up.
type denials struct {
	nanos    []float64
	allocs   float64
	count    int64
	commands int64 // that Redis saw meanwhile
}

func runDenied(ctx context.Context, b *bench) error {
	b.say("cached denials")
	client := b.redis.dial()
	defer client.Close()
	store := redisstore.New(client)
	store.Timeout = patience
	ch := storeCaller(store, tight)()
	b.denied = &denials{}
	for round := range b.roundsOr(11, 5) + 1 {
		// The denial cache keeps an answer for a second, so each round uses up a key of
		// its own.
		subject := fmt.Sprintf("denied:%d", round)
		if err := asserts(contestant{name: ours, caller: shared(ch)}, subject); err != nil {
			return err
		}
		before, err := b.redis.commands(ctx)
		if err != nil {
			return err
		}
		s, err := deny(ch, subject, 20*time.Millisecond)
		if err != nil {
			return err
		}
		after, err := b.redis.commands(ctx)
		if err != nil {
			return err
		}
		b.denied.commands += after - before
		b.denied.count += s.checks
		if round > 0 {
			b.denied.nanos = append(b.denied.nanos, s.nanos())
		}
		b.denied.allocs = max(b.denied.allocs, testing.AllocsPerRun(100, func() { _, _ = ch(subject) }))
	}
	return nil
}

// deny asks about a key that is used up, again and again.
func deny(ch check, subject string, slice time.Duration) (sample, error) {
	begin := time.Now()
	for n := int64(0); ; {
		for range 256 { // so that the clock is not what is measured
			ok, err := ch(subject)
			if err != nil {
				return sample{}, err
			}
			if ok {
				return sample{}, fmt.Errorf("%s: admitted a check of a key that is used up", subject)
			}
		}
		n += 256
		if elapsed := time.Since(begin); elapsed > slice {
			return sample{checks: n, elapsed: elapsed}, nil
		}
	}
}

// runUsage asks Redis for the memory of one key of each limiter, for one
// subject.
func runUsage(ctx context.Context, b *bench) error {
	b.say("memory of a key in Redis")
	cs, err := build(b.redis, lasting, limitersOnRedis...)
	if err != nil {
		return err
	}
	defer closeAll(cs)
	b.usage = map[string]float64{}
	for _, c := range cs {
		s := subject(90_000_000)
		if _, err := c.once(s); err != nil {
			return err
		}
		n, err := b.redis.usage(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		b.usage[c.name] = float64(n)
		if err := b.redis.admin().FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}
