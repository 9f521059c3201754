// Package replay is the command "ratelimit replay". It shows what policies would have done
// to the requests of an access log: it sends them through the middleware on the log's own
// clock, and prints for each policy what it would have denied, which subjects, and which
// limits would fit.
//
//	go run ./cmd/ratelimit replay -h
//
// Where to change what: source.go, logs.go, entry.go, jsonline.go, timestamp.go and
// prefix.go read logs; settings.go and funcs.go read flags and policies; player.go
// decides; meter.go, top.go and timeline.go count; report.go and chart.go print.
//
// It takes less than 200 MB for logs of any length.
package replay

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
)

// Main runs the command with the arguments after its name, and returns the exit code.
func Main(args []string) int {
	// Most of the memory has no pointers and costs the collector nothing, so it may
	// run more often.
	debug.SetGCPercent(50)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	err := run(ctx, args, os.Stdin, os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		printUsage(os.Stdout)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "ratelimit replay:", err)
		return 1
	}
	return 0
}

// run replays until the logs or the context end, and prints the report.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	s, err := readSettings(args)
	if err != nil {
		return err
	}
	p, err := newPlayer(s.policies, s.funcs)
	if err != nil {
		return err
	}
	bar := newProgress(stderr, s.files, s.quiet)
	sources, err := openAll(s.files, stdin, s.fields, func(n int) { bar.Add(n) })
	if err != nil {
		return err
	}
	stats, stopped := p.playAll(ctx, sources)
	bar.Exit()
	bar.Clear()
	r := report{player: p, stats: stats, stopped: stopped, share: s.atMost / 100}
	if p.requests == 0 && !stopped {
		return errors.Join(stats.err, r.noRequests())
	}
	r.print(stdout)
	if s.out != "" && p.requests > 0 {
		err = saveCharts(stdout, s.out, p, stats.zone)
	}
	return errors.Join(stats.err, err)
}
