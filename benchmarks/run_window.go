package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/gcra/slidinglog"
)

const slidingLog = "sliding log"

// window is a limit that a sliding log can be given, of which its keys here have
// some dozens of checks in their windows.
var window = limit{count: 1000, burst: 1000, per: time.Minute}

// filled are numbers of checks in a window, for the memory that they take.
var filled = []int{1, 10, 100, 1000}

// windows is what a strict window costs beside GCRA and a plain SET.
type windows struct {
	callers map[int]samples
	usage   map[string]map[int]float64 // bytes of a key, by checks in its window
}

func newSlidingLog(d deployment, l limit) (contestant, error) {
	return onGoRedis(d, slidingLog, func(client redis.UniversalClient) (func() check, error) {
		store := slidinglog.NewRedis(client)
		store.Timeout = patience
		return storeCaller(store, l), nil
	})
}

func runWindow(ctx context.Context, b *bench) error {
	b.say("a strict window beside GCRA")
	cs, err := asserted(b.redis, window, newOurs, newSlidingLog, newCommand(goRedisSet, set))
	if err != nil {
		return err
	}
	defer closeAll(cs)
	b.window = &windows{callers: map[int]samples{}, usage: map[string]map[int]float64{}}
	list := subjects(200)
	slice := b.slice(100*time.Millisecond, 60*time.Millisecond)
	for _, n := range []int{1, 16} {
		if b.window.callers[n], err = round(ctx, cs, b.roundsOr(4, 3), n, slice, list); err != nil {
			return err
		}
	}
	client := b.redis.dial()
	defer client.Close()
	plain, log := redisstore.New(client), slidinglog.NewRedis(client)
	plain.Timeout, log.Timeout = patience, patience
	for name, store := range map[string]gcra.Store{ours: plain, slidingLog: log} {
		b.window.usage[name] = map[int]float64{}
		caller := storeCaller(store, window)()
		for i, n := range filled {
			s := subject(80_000_000 + i)
			for range n {
				if _, err := caller(s); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			size, err := b.redis.usage(ctx, s)
			if err != nil {
				return err
			}
			b.window.usage[name][n] = float64(size)
		}
		if err := b.redis.admin().FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}

// report writes the section about strict windows.
func (w *windows) report(out io.Writer) {
	fmt.Fprintf(out, "A strict window (gcra/slidinglog) beside GCRA and a plain SET, %d units a minute: microseconds a check and CPU of Redis by callers, and ratios to SET:\n\n", window.count)
	fmt.Fprint(out, "| | 1 caller | to SET | CPU | 16 callers | to SET | CPU |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, name := range []string{goRedisSet, ours, slidingLog} {
		fmt.Fprintf(out, "| %s |", name)
		for _, n := range []int{1, 16} {
			times := w.callers[n].of(sample.nanos)
			fmt.Fprintf(out, " %.1f | %.2f | %.1f |", median(times[name])/1000, ratio(times[name], times[goRedisSet]),
				median(w.callers[n].of(sample.cpuMicros)[name]))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprint(out, "\nBytes of a key, by checks in its window:\n\n|")
	for _, n := range filled {
		fmt.Fprintf(out, " | %d", n)
	}
	fmt.Fprint(out, " |\n|---|--:|--:|--:|--:|\n")
	for _, name := range []string{ours, slidingLog} {
		fmt.Fprintf(out, "| %s |", name)
		for _, n := range filled {
			fmt.Fprintf(out, " %.0f |", w.usage[name][n])
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out)
}
