package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"
)

// bench is one run of all stages, or of those that the chosen rows need.
type bench struct {
	settings
	last   bool // no other run follows
	redis  deployment
	server string // its name and version
	results
}

// settings are the same for all runs.
type settings struct {
	short  bool
	brief  bool           // slices of next to nothing, to see that everything works
	rounds int            // 0: each stage's own
	row    *regexp.Regexp // only what these rows need; nil: everything
	*progress
}

// results are what the stages have measured. A stage that did not run has left
// its part empty.
type results struct {
	callers  map[int]samples     // on Redis, many keys, by callers
	hot      map[int]samples     // on Redis, one key, by callers
	redisAll map[string]expense  // of a check on Redis
	cluster  samples             // on a cluster
	ring     samples             // on a Ring and on one Redis
	quota    samples             // of a rate and a quota together
	gaps     []float64           // between two calls that a partner receives, in milliseconds
	denied   *denials            // from the denial cache
	usage    map[string]float64  // bytes of a key in Redis
	window   *windows            // strict, beside GCRA
	memory   map[setting]samples // in memory
	memAll   map[string]expense  // of a check in memory
	serve    map[string]samples  // whole middleware, by framework
	serveAll map[string]map[string]expense
	wire     map[string]samples // whole middleware over loopback, by framework
	redisUp  []growth
	memUp    []growth
}

// stage is a part of a run.
type stage struct {
	id   string
	run  func(context.Context, *bench) error
	took time.Duration // about, on two cores
	once bool          // in the last run only: no row is measured there
}

const (
	stageCallers  = "callers"
	stageHot      = "hot key"
	stageCluster  = "cluster"
	stageRing     = "Ring"
	stageQuota    = "quota"
	stageDenied   = "denied"
	stageUsage    = "usage"
	stageWindow   = "strict window"
	stageWait     = "wait"
	stageMemory   = "memory"
	stageServe    = "middleware"
	stageLoopback = "loopback"
	stageGrowth   = "growth"
)

var stages = []stage{
	{id: stageCallers, run: runCallers, took: 55 * time.Second},
	{id: stageHot, run: runHot, took: 12 * time.Second},
	{id: stageCluster, run: runCluster, took: 10 * time.Second},
	{id: stageRing, run: runRing, took: 5 * time.Second},
	{id: stageQuota, run: runQuota, took: 6 * time.Second},
	{id: stageDenied, run: runDenied, took: time.Second},
	{id: stageUsage, run: runUsage, took: time.Second},
	{id: stageWindow, run: runWindow, took: 4 * time.Second},
	{id: stageWait, run: runWait, took: 10 * time.Second},
	{id: stageMemory, run: runMemory, took: 25 * time.Second},
	{id: stageServe, run: runServe, took: 20 * time.Second},
	{id: stageLoopback, run: runLoopback, took: 10 * time.Second},
	{id: stageGrowth, run: runGrowth, took: 40 * time.Second, once: true},
}

// run runs the stages, with servers of its own.
func (b *bench) run(ctx context.Context) error {
	return withServers(func(t testing.TB) (err error) {
		b.redis = oneRedis(t)
		if b.server, err = b.redis.program(ctx); err != nil {
			return err
		}
		for _, s := range stages {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !b.needs(s) || s.once && !b.last {
				continue
			}
			if err := b.time(s, func() error { return s.run(ctx, b) }); err != nil {
				return fmt.Errorf("%s: %w", s.id, err)
			}
		}
		return nil
	})
}

func (s settings) needs(g stage) bool {
	return s.row == nil || slices.ContainsFunc(s.targets(), func(t target) bool { return t.stage == g.id })
}

// targets are the rows to print.
func (s settings) targets() []target {
	return slices.DeleteFunc(slices.Clone(targets), func(t target) bool {
		return s.row != nil && !s.row.MatchString(t.name)
	})
}

// roundsOr is the number of rounds: the flag's, or the stage's own.
func (s settings) roundsOr(full, short int) int {
	switch {
	case s.rounds > 0:
		return s.rounds
	case s.short:
		return short
	}
	return full
}

func (s settings) slice(full, short time.Duration) time.Duration {
	switch {
	case s.brief:
		return time.Millisecond
	case s.short:
		return short
	}
	return full
}
