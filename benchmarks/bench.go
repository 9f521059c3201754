package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"
)

// bench is one run of the program.
type bench struct {
	short  bool
	brief  bool           // slices of next to nothing, to see that everything works
	rounds int            // 0: each stage's own
	row    *regexp.Regexp // only what these rows need; nil: everything
	log    io.Writer
	begin  time.Time
	load   float64 // of the machine, before the run
	redis  *server
	results
}

// results are what the stages have measured. A stage that did not run has left
// its part empty.
type results struct {
	callers  map[int]samples     // on Redis, many keys, by callers
	hot      map[int]samples     // on Redis, one key, by callers
	redisAll map[string]expense  // of a check on Redis
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

// stage is a part of the run.
type stage struct {
	id  string
	run func(context.Context, *bench) error
}

const (
	stageCallers  = "callers"
	stageHot      = "hot key"
	stageDenied   = "denied"
	stageUsage    = "usage"
	stageWindow   = "strict window"
	stageMemory   = "memory"
	stageServe    = "middleware"
	stageLoopback = "loopback"
	stageGrowth   = "growth"
)

var stages = []stage{
	{stageCallers, runCallers},
	{stageHot, runHot},
	{stageDenied, runDenied},
	{stageUsage, runUsage},
	{stageWindow, runWindow},
	{stageMemory, runMemory},
	{stageServe, runServe},
	{stageLoopback, runLoopback},
	{stageGrowth, runGrowth},
}

// run runs the stages that the chosen rows need, or all of them.
func (b *bench) run(ctx context.Context) error {
	for _, s := range stages {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !b.needs(s.id) {
			continue
		}
		if err := s.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", s.id, err)
		}
	}
	return nil
}

func (b *bench) needs(stage string) bool {
	return b.row == nil || slices.ContainsFunc(b.targets(), func(t target) bool { return t.stage == stage })
}

// targets are the rows to print.
func (b *bench) targets() []target {
	return slices.DeleteFunc(slices.Clone(targets), func(t target) bool {
		return b.row != nil && !b.row.MatchString(t.name)
	})
}

// roundsOr is the number of rounds: the flag's, or the stage's own.
func (b *bench) roundsOr(full, short int) int {
	switch {
	case b.rounds > 0:
		return b.rounds
	case b.short:
		return short
	}
	return full
}

func (b *bench) slice(full, short time.Duration) time.Duration {
	switch {
	case b.brief:
		return time.Millisecond
	case b.short:
		return short
	}
	return full
}

// progress says what is being done, and since when.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(b.log, "[%4.0fs] %s\n", time.Since(b.begin).Seconds(), fmt.Sprintf(format, args...))
}
