// Algorithms compares GCRA, a sliding log and a fixed window under the same traffic, in
// virtual time: the most requests that each allows in a window, and the cost of a key
// and a check.
//
//	go run ./examples/algorithms [-out dir]
//
// The fixed window, in fixed.go, is also an example of your own store. traffic.go has the
// traffic and the measurements, chart.go the chart.
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

	"gonum.org/v1/plot/plotter"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
)

// limit is the limit of all algorithms.
var limit = gcra.Limit{Count: 20, Per: 10 * time.Second}

type algorithm struct {
	name string
	open func(now func() time.Time) gcra.Store
}

var algorithms = []algorithm{
	{"GCRA", func(now func() time.Time) gcra.Store { return gcra.NewMemory(gcra.MemoryConfig{Now: now}) }},
	{"sliding log", func(now func() time.Time) gcra.Store { return slidinglog.NewMemory(slidinglog.Config{Now: now}) }},
	{"fixed window", func(now func() time.Time) gcra.Store { return &fixedWindow{now: now} }},
}

const usage = `Algorithms compares GCRA, a sliding log and a fixed window under the same traffic,
in virtual time.

  go run ./examples/algorithms [-out dir]

  -out dir  draw algorithms.png and algorithms.svg here (default: no chart)
  -h        this text

`

// columns explains the table.
var columns = fmt.Sprintf(`Columns

  edge         %[2]s
  steady       %[3]s
  two bursts   %[4]s
  bytes a key  memory of a key whose limit is used up
  µs a check   time of a check on this machine

The columns edge, steady and two bursts show the largest number of requests that
were allowed within any %[1]v.

Why GCRA allows more than %[5]d: its limit is a bucket of Burst units (here %[5]d) that
refills continuously, by Count units (here %[5]d) in %[1]v. A client with a full bucket
gets Burst units at once, and then the units that refill. So a window has at
most Burst + Count requests, and only the first window after a pause has so many:
steady gets %[5]d, and %[6]d that refill. In return no client waits for a window to end,
and a key is one integer. For a tighter bound set a smaller burst: 20/10s with a
burst of 1 allows at most 21.

The fixed window allows twice the limit around an edge. The sliding log never exceeds
the limit; it stores the time of every request.
`, limit.Per, traffics[0].description, traffics[1].description, traffics[2].description, limit.Count, limit.Count-1)

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

	fmt.Fprintf(out, "Limit: %v. The most requests allowed in any %v, and the cost of a store in memory:\n\n", limit, limit.Per)

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
		bytes, micros, err := cost(a, limit.Count, 5000)
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

	memory := make([]plotter.XYs, len(algorithms))
	for i, a := range algorithms {
		if memory[i], err = memoryOf(a); err != nil {
			return err
		}
	}
	for _, format := range []string{"png", "svg"} {
		file := filepath.Join(*dir, "algorithms."+format)
		if err := writeChart(file, format, runs, memory); err != nil {
			return err
		}
		fmt.Fprintln(out, "wrote", file)
	}
	return nil
}
