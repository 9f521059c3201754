// Algorithms compares GCRA, a sliding log and a fixed window under the same
// traffic, in virtual time: how much each lets through at its worst, what a key
// and a check cost, and how it looks over time.
//
//	go run ./examples/algorithms [-out dir]
//
// The fixed window, in fixed.go, is also an example of a store of one's own.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/slidinglog"
)

// limit is the one that all of them keep, each in its way.
var limit = gcra.Limit{Count: 20, Per: 10 * time.Second}

type algorithm struct {
	name string
	open func(now func() time.Time) gcra.Store
}

var algorithms = []algorithm{
	{"GCRA", func(now func() time.Time) gcra.Store { return &gcra.Memory{Now: now} }},
	{"sliding log", func(now func() time.Time) gcra.Store { return &slidinglog.Memory{Now: now} }},
	{"fixed window", func(now func() time.Time) gcra.Store { return &fixedWindow{now: now} }},
}

const usage = `Algorithms compares GCRA, a sliding log and a fixed window under the same traffic,
in virtual time.

  go run ./examples/algorithms [-out dir]

  -out dir  where to draw algorithms.png and algorithms.svg (default: none)
  -h        this text

`

// columns says what the table shows.
var columns = fmt.Sprintf(`Columns

  edge         %[2]s
  steady       %[3]s
  two bursts   %[4]s
  bytes a key  memory for a key that has used its limit up
  µs a check   time of a check on this machine

Under edge, steady and two bursts is the largest number of requests that was let
through within any %[1]v.

Why GCRA lets more than %[5]d through: its limit is a bucket of Burst units (here %[5]d)
that refills all the time, Count units (here %[5]d) in %[1]v. A client that finds the
bucket full gets Burst units at once, and then what refills. So a window has at
most Burst + Count requests, and only the first one after a pause has that many:
steady gets %[5]d, and %[6]d that refill. In return no client waits for a window to end,
and a key is one integer. For a tighter bound set a smaller burst: 20/10s with a
burst of 1 lets at most 21 through.

The fixed window lets twice the limit through around an edge. The sliding log never
exceeds the limit, and keeps the time of every request for that.
`, limit.Per, traffics[0].story, traffics[1].story, traffics[2].story, limit.Count, limit.Count-1)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "algorithms:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("algorithms", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	dir := flags.String("out", "", "")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		_, err := io.WriteString(out, usage+columns)
		return err
	} else if err != nil {
		return fmt.Errorf("%w; want -out dir or nothing, see -h", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is not a flag; want -out dir or nothing, see -h", flags.Arg(0))
	}

	runs, err := simulateAll()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Limit: %v. Most admitted in any %v, and what a store in this process costs:\n\n", limit, limit.Per)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "algorithm\t")
	for _, t := range traffics {
		fmt.Fprintf(w, "%s\t", t.name)
	}
	fmt.Fprintln(w, "bytes a key\tµs a check\t")
	for i, a := range algorithms {
		fmt.Fprintf(w, "%s\t", a.name)
		for j := range traffics {
			fmt.Fprintf(w, "%d\t", most(runs[i][j], limit.Per))
		}
		bytes, micros, err := cost(a)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%.0f\t%.2f\t\n", bytes, micros)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprint(out, "\n", columns)
	if *dir == "" {
		return nil
	}
	fmt.Fprintln(out)

	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	for _, format := range []string{"png", "svg"} {
		file := filepath.Join(*dir, "algorithms."+format)
		if err := writeChart(file, format, runs); err != nil {
			return err
		}
		fmt.Fprintln(out, "wrote", file)
	}
	return nil
}
