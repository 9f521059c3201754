// Worker does tasks at a rate that all workers share, in all processes on one Redis.
//
//	go run ./examples/worker -redis redis://localhost:6379/0 -rate 10/second -workers 4 -tasks 200
//
// Run it in a second shell at the same time: each process does half of the rate. End
// one, and the other does all of it.
//
// It replaces a limiter in each worker with a share of the rate:
//
//	limiter := rate.NewLimiter(10.0/workers, 1) // how many workers are there?
//
// Such a share depends on the number of workers. It is too large when more are started,
// too small when some have ended or are idle, and begins anew after a restart. Here each
// task waits for the next turn, and turns come at the rate: copy turn from pool.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

const usage = `Worker does tasks at a rate that all workers share, in every process on one Redis.

  go run ./examples/worker [flags]

  -redis url         the Redis that the processes share:
                     redis://[user:password@]host:6379/0, rediss:// for TLS,
                     redis://host1:6379,host2:6379 for a cluster. Without it the
                     rate is for this process alone
  -rate limit        of all workers together (default 10/second): 100/minute,
                     10/5s. Tasks are spread evenly; with "10/second burst 10" up
                     to 10 start at once after an idle time
  -name name         name of the rate (default worker). Processes with the same
                     name share it, and must have the same -rate
  -workers n         number of concurrent tasks of this process (default 4)
  -tasks n           number of tasks of this process (default 200); 0 is no end
  -work duration     duration of a task (default 50ms)
  -v                 print a line for each task
  -h                 this text

Ctrl-C ends the process at once.
`

func main() {
	ctx, forget := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	forget()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := readSettings(args)
	if errors.Is(err, flag.ErrHelp) {
		_, err = io.WriteString(out, usage)
		return err
	}
	if err != nil {
		return err
	}

	p := &pool{
		turns: turns.Turns{
			Store:   gcra.NewMemory(),
			Charges: []gcra.Charge{{Subject: s.name, Policy: "tasks", Limit: s.rate, Cost: 1}},
		},
		workers: s.workers,
		tasks:   s.tasks,
		work:    s.work,
		verbose: s.verbose,
		out:     &lines{w: out},
	}

	where := "this process alone; -redis shares it with others"
	if s.redis != "" {
		store, err := redisstore.Open(s.redis, redisstore.Config{
			Timeout: 2 * time.Second,               // the default is for servers
			Logger:  slog.New(slog.DiscardHandler), // the pool prints it
		})
		if err != nil {
			return fmt.Errorf("-redis is no URL such as redis://localhost:6379/0: %w", err)
		}
		defer store.Close()

		if err := store.Ping(ctx); err != nil {
			p.fails(time.Now(), err)
		}
		p.turns.Store, where = store, "all workers named "+s.name+" on this Redis"
	}

	p.out.printf("%d workers, process %d. The rate is %v for %s.", s.workers, os.Getpid(), s.rate, where)
	p.run(ctx)
	return nil
}

type settings struct {
	redis, name    string
	rate           gcra.Limit
	workers, tasks int
	work           time.Duration
	verbose        bool
}

const (
	known      = "want -redis, -rate, -name, -workers, -tasks, -work or -v, see -h"
	maxWorkers = 10_000
)

// readSettings parses the flags. Its errors contain the value and the valid values.
func readSettings(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&s.redis, "redis", "", "")
	rate := flags.String("rate", "10/second", "")
	flags.StringVar(&s.name, "name", "worker", "")
	flags.IntVar(&s.workers, "workers", 4, "")
	flags.IntVar(&s.tasks, "tasks", 200, "")
	flags.DurationVar(&s.work, "work", 50*time.Millisecond, "")
	flags.BoolVar(&s.verbose, "v", false, "")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return s, err
	} else if err != nil {
		return s, fmt.Errorf("%w; %s", err, known)
	}

	if flags.NArg() > 0 {
		return s, fmt.Errorf("%q is not a flag; %s", flags.Arg(0), known)
	}

	var err error
	if s.rate, err = gcra.ParseLimit(*rate); err == nil {
		err = s.rate.Validate() // none is a limit to ParseLimit, and not to a store
	}
	if err != nil {
		return s, fmt.Errorf("-rate is %q; want a limit such as 10/second (%w)", *rate, err)
	}

	if s.rate.Burst == 0 {
		s.rate.Burst = 1
	}

	switch {
	case s.name == "":
		return s, errors.New("-name is empty; want one that all workers of the rate share")
	case s.workers < 1 || s.workers > maxWorkers:
		return s, fmt.Errorf("-workers is %d; want 1 to %d", s.workers, maxWorkers)
	case s.tasks < 0:
		return s, fmt.Errorf("-tasks is %d; want 1 or more, or 0 for no end", s.tasks)
	case s.work < 0:
		return s, fmt.Errorf("-work is %v; want 0 or more", s.work)
	}
	return s, nil
}
