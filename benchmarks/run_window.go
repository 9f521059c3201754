package main

import (
	"context"
	"fmt"
	"io"
	"time"

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

func newSlidingLog(s *server, l limit) (contestant, error) {
	client := s.client()
	store := slidinglog.NewRedis(client)
	store.Timeout = patience
	return contestant{name: slidingLog, caller: storeCaller(store, l), close: func() { _ = client.Close() }}, nil
}

func runWindow(ctx context.Context, b *bench) (err error) {
	b.progress("a strict window beside GCRA")
	var cs []contestant
	defer func() { closeAll(cs) }()
	for _, build := range []func(*server, limit) (contestant, error){newOurs, newSlidingLog, newGoRedisSet} {
		c, err := build(b.redis, window)
		if err != nil {
			return err
		}
		cs = append(cs, c)
	}
	b.window = &windows{callers: map[int]samples{}, usage: map[string]map[int]float64{}}
	list := subjects(200)
	slice := b.slice(100*time.Millisecond, 60*time.Millisecond)
	for _, n := range []int{1, 16} {
		b.window.callers[n], err = interleave(cs, b.roundsOr(9, 3), func(c contestant) (sample, error) {
			if err := ctx.Err(); err != nil {
				return sample{}, err
			}
			return b.withCPU(ctx, c, n, slice, list)
		})
		if err != nil {
			return err
		}
	}
	client := b.redis.client()
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
		if err := b.redis.admin.FlushAll(ctx).Err(); err != nil {
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
