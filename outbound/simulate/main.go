// Simulate compares strategies by which clients keep to a server's limit, in virtual
// time: half an hour takes less than a second.
//
//	go run ./outbound/simulate -h
//
// Ten clients in two processes call a server of 4,500 requests an hour without pause.
// Its bucket is empty at first. That, and the figures printed for comparison, are those
// of the published comparison in rate_throttle_client.
//
// rows.go lists the strategies, published.go and ours.go implement them, server.go is
// the server, and world.go runs the simulation.
//
// draw.go draws worlds of chance, api.go is their server, and random.go runs the strategies in
// them. worlds.go lists worlds after partners of the real world, partner.go is their server, and
// contest.go runs the strategies.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/seed-e377111c/ratelimit/gcra"
)

const usage = `Simulate compares strategies by which clients keep to a server's limit.

  go run ./outbound/simulate [flags]

  -seed n     the first seed (default 1); the same seed gives the same figures
  -seeds n    number of seeds; the table shows means (default 1)
  -short      only the rows remaining, adaptive-remaining-only, adaptive and
              coordinated; with -random only adaptive
  -random n   n worlds that the seed draws: see Random worlds
  -each       a line for each of them, too
  -worlds     other limits, windows, header fields and clients: see Worlds
  -h          this text

The server allows 4,500 requests an hour by GCRA, with a bucket of 4,500 that is
empty at the start. 2 processes of 5 threads call it without pause for 30
minutes. A request takes 0.165 s. The threads of a process share one strategy,
the processes share nothing. 0 to 10 % are added to every sleep at random.

Rows

  none                     no sleep
  backoff-2, backoff-1.2   exponential backoff after a denial
  gradual, proportional,   sleep before each request; longer after a denial,
  remaining                shorter after a success: by a constant, by a fraction,
                           by a fraction that grows with RateLimit-Remaining
  adaptive-remaining-only  httpclient.Adaptive, with RateLimit-Remaining alone
  adaptive                 the same, with all fields of our middleware
  coordinated              takes slots from a store that the processes share

Columns: average retry rate (denied requests per attempt, over threads), longest
sleep, standard deviation of the threads' request counts, and the time to clear:
with 4,500 units that do not refill and a first sleep of 1 s, until a thread
sees 10 remaining. The best possible time is 74.085 s, and for strategies that
sleep before the first request about a second more. The row deviation is the
difference of the mean from the published figure in percent.

Random worlds

-random draws limits of 1 to 10,000 units in 1 s to 1 day, 1 to 30 clients, and
what else partners do: see draw.go. In the main table each client has at least
10 units a window and the burst is at least 3; the others are in the second.
Each figure is the median over the worlds, with the 5th and 95th percentile and
the worst: denied requests of the late part in percent; what the clients got of
what limit, latency and outages leave, in percent; most over least served client;
and how long after a time in which the limit gave a tenth until half of what
is possible is used, where 1 is ten windows or ten minutes, whichever is longer.
The strategies are adaptive, a Transport alone,
the row backoff-2, and the row remaining as published, which knows the limit.

Worlds

-worlds compares two strategies in many worlds: adaptive, and the row remaining as
published, which knows the limit. If one of these flags is set, it makes a single
world instead:

  -limit l      such as 10/second, 4500/hour or "15/second burst 300"
                (default 4500/hour)
  -window w     gcra, fixed (all at once again at its end) or strict (never more
                than the limit in any such period) (default gcra)
  -fields f     of the responses: draft6, draft7, draft11, x (X-RateLimit-*, with
                a Unix time in a fixed window), none, or those of discord, gitlab,
                iso (dates), openai, reddit, shopify, twitter or zendesk (default
                draft6)
  -bare         denials have no Retry-After
  -lie l        4000: the fields always say 4000 of 5000 an hour; day: they are
                those of another limit, per day
  -clients n    that call without pause (default 10)
  -processes n  that the clients are in; those of one share a pacer (default: one
                for each client)
  -join n       clients that begin after five windows, or ten minutes if that is
                longer
  -leave n      clients that end then

Columns: denied requests in percent in the whole run and late, which is after
five windows, or ten minutes if that is longer, and twice that with -join or
-leave; the used part, late; most over least served client, late; means over the
seeds. A request takes 0.1 to 0.15 s, but for the world slow.
`

type settings struct {
	seed  uint64
	seeds int
	short bool

	random int // worlds to draw
	each   bool

	worlds bool
	world  *world // nil for none
}

func readSettings(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Uint64Var(&s.seed, "seed", 1, "")
	flags.IntVar(&s.seeds, "seeds", 1, "")
	flags.BoolVar(&s.short, "short", false, "")
	flags.IntVar(&s.random, "random", 0, "")
	flags.BoolVar(&s.each, "each", false, "")
	flags.BoolVar(&s.worlds, "worlds", false, "")

	// One of these makes a world of its own.
	w := world{name: "this world"}
	w.limit = per(4500, hour)
	flags.Func("limit", "", func(text string) (err error) {
		w.limit, err = gcra.ParseLimit(text)
		return err
	})

	oneOf := func(p *string, name, values string) {
		flags.Func(name, "", func(text string) error {
			if !slices.Contains(strings.Fields(values), text) {
				return fmt.Errorf("want one of %s", values)
			}
			*p = text
			return nil
		})
	}
	w.window, w.fields = "gcra", "draft6"
	oneOf(&w.window, "window", "gcra fixed strict")
	oneOf(&w.fields, "fields", "draft6 draft7 draft11 x none discord gitlab iso openai reddit shopify twitter zendesk")
	oneOf(&w.lie, "lie", "4000 day")
	flags.BoolVar(&w.bare, "bare", false, "")
	flags.IntVar(&w.clients, "clients", 10, "")
	flags.IntVar(&w.processes, "processes", 0, "")
	flags.IntVar(&w.join, "join", 0, "")
	flags.IntVar(&w.leave, "leave", 0, "")

	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return s, flag.ErrHelp
	} else if err != nil {
		return s, fmt.Errorf("%w; see -h", err)
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("%q is not a flag; see -h", flags.Arg(0))
	}

	if s.seeds < 1 || s.seeds > 10_000 {
		return s, fmt.Errorf("-seeds is %d; want 1 to 10000", s.seeds)
	}

	if s.random < 0 || s.random > 10_000 {
		return s, fmt.Errorf("-random is %d; want 0 to 10000", s.random)
	}

	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"seed", "seeds", "short", "random", "each", "worlds"}, f.Name) {
			s.world = &w
		}
	})
	if s.world != nil {
		w.name = w.String()
		return s, w.check()
	}
	return s, nil
}

func main() {
	s, err := readSettings(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(os.Stdout, usage)
		return
	}
	if err == nil {
		err = simulate(os.Stdout, os.Stderr, s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

// simulate prints the table to w, and its progress.
func simulate(w, progress io.Writer, s settings) error {
	if s.random > 0 {
		chosen := rivals
		if s.short {
			chosen = rivals[:1]
		}
		return printRandom(w, playRandom(s.random, s.seed, chosen, progress), chosen, s.each)
	}
	if s.worlds || s.world != nil {
		list := worlds
		if s.world != nil {
			list = []world{*s.world}
		}
		all := playAll(list, s.seed, s.seeds, progress)
		return printWorlds(w, all)
	}

	chosen := rows
	if s.short {
		chosen = rows[5:]
	}

	summaries := make([]*summary, 0, len(chosen))
	for i := range chosen {
		fmt.Fprintf(progress, "%d/%d %s, %d x 30 minutes\n", i+1, len(chosen), chosen[i].name, s.seeds)
		v, err := chosen[i].over(s.seed, s.seeds)
		if err != nil {
			return err
		}
		summaries = append(summaries, v)
	}
	return printTable(w, summaries, s.seeds)
}

func printTable(w io.Writer, summaries []*summary, seeds int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tretry %\tlongest s\tstdev\tclear s\t\t")
	for _, v := range summaries {
		fmt.Fprintf(t, "%s\t%s\t\t\n", v.name, cells(v.mean))

		if seeds > 1 {
			fmt.Fprintf(t, "worst\t%s\t\t\n", cells(v.worst))
		}
		if v.published != nil {
			fmt.Fprintf(t, "published\t%s\t\t\n", cells(*v.published))
			d := v.deviation()
			fmt.Fprintf(t, "deviation\t%+.0f\t%+.0f\t%+.0f\t%+.0f\t%%\t\n", d[0], d[1], d[2], d[3])
		}
	}

	if err := t.Flush(); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	if seeds > 1 {
		fmt.Fprintf(w, "means over %d seeds\n", seeds)
	}
	return nil
}

// deviation returns the difference of the mean from the published figures in percent.
func (v *summary) deviation() (d metrics) {
	for k := range d {
		d[k] = 100 * (v.mean[k]/v.published[k] - 1)
	}
	return d
}

func cells(m metrics) string {
	return fmt.Sprintf("%.2f\t%.2f\t%.2f\t%.3f", m[0], m[1], m[2], m[3])
}
