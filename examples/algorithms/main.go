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

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "algorithms:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("algorithms", flag.ContinueOnError)
	flags.SetOutput(out)
	dir := flags.String("out", "", "directory for algorithms.png and algorithms.svg; empty draws none")
	if err := flags.Parse(args); err != nil {
		return err
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
