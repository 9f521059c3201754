// Command benchmarks measures ratelimit beside its peers, in one run on one
// machine, and holds it to the targets of the project.
//
//	go -C benchmarks run .
//
// It prints a line for each target and exits 1 when one is missed. See README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/pprof"
	"syscall"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

func main() {
	redistest.Child(waitingVar, waitingProcess)
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

It starts servers of its own, makes three runs and takes about ten minutes. It
prints a line for each target (row, ours, theirs, ratio, spread, target, ok or short),
writes RESULTS.md and two charts, quotes rows in README.md, and exits 1 when a target is
missed. For figures to quote, run nothing else on the machine.

`

// run reports whether every chosen target is met.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (ok bool, err error) {
	flags := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, about)
		flags.PrintDefaults()
	}
	short := flags.Bool("short", false, "make one run of about a minute, with fewer rounds and fewer keys, and write no files")
	rowExpr := flags.String("row", "", "measure only the rows whose name matches the `regexp`, as ^Memory or middleware, and write no files")
	runs := flags.Int("runs", 0, "`number` of runs; 0 means 3, or 1 with -short")
	rounds := flags.Int("rounds", 0, "`number` of rounds of every measurement; 0 means each stage's own")
	server := flags.String("server", serverDefault(), "`program` to measure on, such as a valkey-server; default from RATELIMIT_BENCH_SERVER")
	out := flags.String("out", "", "`directory` to write RESULTS.md and the charts to; default: this one, or none with -short")
	profile := flags.String("cpuprofile", "", "write a CPU profile of this process to the `file`")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return false, err
		}
		return false, errUsage
	}
	if *runs < 0 || *rounds < 0 {
		return false, fmt.Errorf("-runs is %d, -rounds %d; want 0 or more", *runs, *rounds)
	}
	if *out == "" && !*short {
		*out = "."
	}
	if *runs == 0 {
		*runs = 3
		if *short {
			*runs = 1
		}
	}
	r := report{
		settings: settings{short: *short, rounds: *rounds, progress: newProgress(stderr)},
	}
	if *rowExpr != "" {
		if r.row, err = regexp.Compile(*rowExpr); err != nil {
			return false, fmt.Errorf("-row: %w", err)
		}
		if len(r.targets()) == 0 {
			return false, fmt.Errorf("-row: no row matches %q", *rowExpr)
		}
	}
	if err := useServer(*server); err != nil {
		return false, err
	}
	if r.others = others(ctx); isBusy(r.others) {
		fmt.Fprintf(stderr, "Other programs keep %.2f of %d cores busy, so figures will be off. Run nothing else on this machine.\n", r.others, runtime.NumCPU())
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
	if err := r.runAll(ctx, *runs); err != nil {
		return false, err
	}
	printRows(stdout, r.rows)
	if *out != "" && r.row == nil {
		if err := r.write(*out); err != nil {
			return false, err
		}
		fmt.Fprintf(stderr, "wrote %s and charts to %s\n", resultsFile, *out)
		if *out == "." {
			if err := quote("../README.md", r.rows); err != nil {
				return false, err
			}
			fmt.Fprintln(stderr, "wrote the rows that README.md quotes")
		}
	}
	return !anyShort(r.rows), nil
}

func serverDefault() string {
	return cmp.Or(os.Getenv("RATELIMIT_BENCH_SERVER"), os.Getenv("RATELIMIT_TEST_SERVER"), "redis-server")
}
