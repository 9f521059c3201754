package main

import (
	"context"
	"maps"
	"slices"
	"time"
)

// assertHTTP asserts that every handler with a limiter keeps the tight limit.
func assertHTTP(build func(limit) (httpContestants, error)) error {
	strict, err := build(tight)
	if err != nil {
		return err
	}
	return assertAll(strict.contestants(), "tight:")
}

func runServe(ctx context.Context, b *bench) error {
	b.serve, b.serveAll = map[string]samples{}, map[string]map[string]expense{}
	list := subjects(manyKeys)
	slice := b.slice(40*time.Millisecond, 25*time.Millisecond)
	for _, build := range frameworks {
		if err := assertHTTP(build); err != nil {
			return err
		}
		h, err := build(roomy)
		if err != nil {
			return err
		}
		b.say("whole middleware: %s", h.framework)
		cs, all := h.contestants(), map[string]expense{}
		for _, c := range cs {
			if err := touch(c, list); err != nil {
				return err
			}
			if all[c.name], err = expenseOf(c, list[0], 1000); err != nil {
				return err
			}
		}
		b.serveAll[h.framework] = all
		order := shuffled(list)
		b.serve[h.framework], err = interleave(cs, b.roundsOr(8, 5), func(c contestant) (sample, error) {
			if err := ctx.Err(); err != nil {
				return sample{}, err
			}
			return drive(c, 1, slice, order)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// overheads are what each limiter adds to the bare handler: a time, round by
// round, and allocations.
func (r *results) overheads(framework string, of func(sample) float64) (added series, more map[string]expense) {
	nanos := r.serve[framework].of(of)
	added, more = series{}, map[string]expense{}
	for name := range nanos {
		if name != bare && name != bareMux {
			added[name] = minus(nanos[name], nanos[without(name)])
			with, base := r.serveAll[framework][name], r.serveAll[framework][without(name)]
			more[name] = expense{with.allocs - base.allocs, with.bytes - base.bytes}
		}
	}
	return added, more
}

// keptAlive is how many clients a server on loopback has.
const keptAlive = 16

func runLoopback(ctx context.Context, b *bench) error {
	b.wire = map[string]samples{}
	list := subjects(manyKeys)
	slice := b.slice(80*time.Millisecond, 50*time.Millisecond)
	for _, build := range frameworks {
		h, err := build(roomy)
		if err != nil {
			return err
		}
		b.say("whole middleware over loopback: %s", h.framework)
		if b.wire[h.framework], err = overWire(ctx, h, b.roundsOr(3, 2), slice, list); err != nil {
			return err
		}
	}
	return nil
}

func overWire(ctx context.Context, h httpContestants, rounds int, slice time.Duration, list []string) (samples, error) {
	var cs []contestant
	defer func() { closeAll(cs) }()
	for _, name := range slices.Sorted(maps.Keys(h.handlers)) {
		c, err := loopback(name, h.handlers[name])
		if err != nil {
			return nil, err
		}
		c.caller = keepCallers(c.caller)
		cs = append(cs, c)
	}
	return interleave(cs, rounds, func(c contestant) (sample, error) {
		if err := ctx.Err(); err != nil {
			return sample{}, err
		}
		return drive(c, keptAlive, slice, list)
	})
}

// keepCallers hands the same callers out again in every round, so that their
// connections stay: drive asks for keptAlive of them each time.
func keepCallers(fresh func() check) func() check {
	var kept []check
	next := 0
	return func() check {
		if len(kept) < keptAlive {
			kept = append(kept, fresh())
			return kept[len(kept)-1]
		}
		next++
		return kept[next%keptAlive]
	}
}
