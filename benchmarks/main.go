// Command benchmarks measures ratelimit beside its peers, in one run on one
// machine, and holds it to the targets of the project.
//
//	go -C benchmarks run .
//
// It prints a line for each target and exits 1 when one is missed. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"syscall"
	"time"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ok, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	case !ok:
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

const about = `Measures ratelimit beside its peers and holds it to the project's targets.

	go -C benchmarks run . [flags]

It starts a redis-server of its own and takes about three minutes. It prints a
line for each target (row, ours, theirs, ratio, target, ok or short), writes
RESULTS.md and two charts, and exits 1 when a target is missed.

`

// run reports whether every chosen target is met.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (ok bool, err error) {
	flags := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, about)
		flags.PrintDefaults()
	}
	short := flags.Bool("short", false, "take less than a minute, with fewer rounds and fewer keys")
	rowExpr := flags.String("row", "", "measure only the rows whose name matches the `regexp`, and write no files")
	rounds := flags.Int("rounds", 0, "`number` of rounds of every measurement; 0 means each stage's own")
	out := flags.String("out", ".", "`directory` to write RESULTS.md and the charts to; \"\" writes none")
	profile := flags.String("cpuprofile", "", "write a CPU profile of this process to the `file`")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return false, err
		}
		return false, errUsage
	}
	b := &bench{short: *short, rounds: *rounds, log: stderr, begin: time.Now(), load: load()}
	if *rowExpr != "" {
		if b.row, err = regexp.Compile(*rowExpr); err != nil {
			return false, fmt.Errorf("-row: %w", err)
		}
		if len(b.targets()) == 0 {
			return false, fmt.Errorf("-row: no row matches %q", *rowExpr)
		}
	}
	if b.redis, err = startRedis(ctx); err != nil {
		return false, err
	}
	defer b.redis.stop()
	if busy(b.load) {
		b.progress("the machine is busy (load average %.2f): figures will be off", b.load)
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return false, err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return false, errors.Join(err, f.Close())
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, f.Close())
		}()
	}
	if err := b.run(ctx); err != nil {
		return false, err
	}
	rows := b.rows()
	b.progress("done")
	printRows(stdout, rows)
	if *out != "" && b.row == nil {
		if err := b.write(ctx, *out, rows); err != nil {
			return false, err
		}
	}
	return !anyShort(rows), nil
}
