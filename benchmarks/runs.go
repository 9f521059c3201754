package main

import (
	"context"
	"maps"
	"slices"
)

// runAll makes the runs, one after the other.
func (r *report) runAll(ctx context.Context, n int) error {
	var runs []results
	r.plan(r.settings, n)
	for i := range n {
		r.nth = i + 1
		b := &bench{settings: r.settings, last: i == n-1}
		if err := b.run(ctx); err != nil {
			return err
		}
		runs = append(runs, b.results)
		r.server = b.server
	}
	r.results, r.rows = merge(runs), r.rowsOf(runs)
	return nil
}

// merge puts the rounds of all runs together. What is not measured in rounds is that
// of the last run.
func merge(runs []results) results {
	all := runs[len(runs)-1]
	for _, earlier := range slices.Backward(runs[:len(runs)-1]) {
		all.callers = mergeAll(earlier.callers, all.callers)
		all.hot = mergeAll(earlier.hot, all.hot)
		all.memory = mergeAll(earlier.memory, all.memory)
		all.serve = mergeAll(earlier.serve, all.serve)
		all.wire = mergeAll(earlier.wire, all.wire)
		all.cluster = earlier.cluster.and(all.cluster)
		all.ring = earlier.ring.and(all.ring)
		all.quota = earlier.quota.and(all.quota)
		all.gaps = slices.Concat(earlier.gaps, all.gaps)
		if all.window != nil {
			all.window = &windows{mergeAll(earlier.window.callers, all.window.callers), all.window.usage}
		}
		if all.denied != nil {
			all.denied = earlier.denied.and(*all.denied)
		}
	}
	return all
}

func mergeAll[K comparable](a, b map[K]samples) map[K]samples {
	out := maps.Clone(b)
	for k := range out {
		out[k] = a[k].and(b[k])
	}
	return out
}

// and is the rounds of both.
func (s samples) and(more samples) samples {
	out := maps.Clone(more)
	for name := range out {
		out[name] = slices.Concat(s[name], more[name])
	}
	return out
}

func (d *denials) and(more denials) *denials {
	return &denials{
		nanos:    slices.Concat(d.nanos, more.nanos),
		allocs:   max(d.allocs, more.allocs),
		count:    d.count + more.count,
		commands: d.commands + more.commands,
	}
}
