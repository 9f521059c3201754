package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// bounds of our strategy in a world; 0 means the usual one.
type bounds struct{ denied, late, share, uneven float64 }

// usual are the bounds in percent: denied after the warm-up at most, used of the limit at least, and
// how often the least served client fits into the best served one at most. Denials in the whole run
// are at most those of the published strategy.
var usual = bounds{late: 5, share: 95, uneven: 2}

const (
	hour = time.Hour
	day  = 24 * time.Hour
)

// never is the bound of a figure that has none.
var never = math.Inf(1)

// Why some worlds miss a bound.
const (
	untold = "denials alone tell a client neither the rate nor how many others there are, and at 5 % it has a dozen in half an hour"
	burst2 = "denials alone do not tell the rate, and a burst of 2 denies most clients that do not keep exact distances"
	small  = "a bucket of one or two units shows next to nothing before it denies, and clients that do not know of each other meet by chance"
	seldom = "a client is served less than twice in a window, and chance decides which part of the window it sees"
)

func per(n int64, d time.Duration) gcra.Limit { return gcra.Limit{Count: n, Per: d} }

// worlds are the worlds of -worlds.
var worlds = buildWorlds()

func buildWorlds() []world {
	var all []world
	add := func(w world) {
		if w.window == "" {
			w.window = "gcra"
		}
		if w.fields == "" {
			w.fields = "draft6"
		}
		if w.name == "" {
			w.name = w.String()
		}
		all = append(all, w)
	}
	// Rates and numbers of clients.
	add(world{limit: per(4500, hour), clients: 10, processes: 2, empty: true})
	for _, n := range []int{1, 2, 10, 30} {
		add(world{limit: per(4500, hour), clients: n, empty: true})
	}
	add(world{limit: per(4500, hour), clients: 100, empty: true})
	add(world{limit: per(4500, hour), clients: 10})
	add(world{limit: per(60, hour), clients: 1})
	add(world{limit: per(60, hour), clients: 5})
	add(world{limit: per(600, hour).WithBurst(100), clients: 20})
	add(world{limit: per(1000, day), clients: 3})
	add(world{limit: per(60, time.Minute), clients: 10})
	add(world{limit: per(100, time.Minute).WithBurst(20), clients: 4})
	add(world{limit: per(10, time.Second), clients: 4})
	add(world{limit: per(10, time.Second).WithBurst(1000), clients: 100})
	add(world{limit: per(15, time.Second).WithBurst(300), clients: 10, empty: true})
	add(world{limit: per(5, time.Second), clients: 1})
	add(world{limit: per(100, time.Second), clients: 20})
	add(world{limit: per(5, time.Minute), clients: 2})
	add(world{limit: per(1, time.Second).WithBurst(1), clients: 1})
	add(world{limit: per(1, time.Second).WithBurst(1), clients: 10, allow: bounds{share: 90, uneven: never}, why: small})
	add(world{limit: per(1, time.Second).WithBurst(10), clients: 10})
	add(world{limit: per(1, time.Second).WithBurst(2), clients: 10, allow: bounds{late: 10, share: 40, uneven: 4}, why: small})
	add(world{limit: per(1, time.Second).WithBurst(5), clients: 10})
	add(world{limit: per(4500, hour), clients: 200})
	// The forms of the fields.
	for _, fields := range []string{"draft7", "draft11", "x", "none"} {
		w := world{limit: per(75, time.Minute), fields: fields, clients: 10}
		if fields == "none" {
			w.allow, w.why = bounds{uneven: never}, untold
		}
		add(w)
	}
	// Fixed and strict windows.
	for _, fields := range []string{"draft6", "draft7", "draft11", "x"} {
		add(world{limit: per(75, time.Minute), window: "fixed", fields: fields, clients: 10})
	}
	add(world{limit: per(75, time.Minute), window: "fixed", clients: 1})
	add(world{limit: per(75, time.Minute), window: "fixed", clients: 40, allow: bounds{uneven: 6}, why: seldom})
	add(world{limit: per(75, time.Minute), window: "fixed", clients: 10, bare: true})
	add(world{limit: per(60, hour), window: "fixed", fields: "x", clients: 5, bare: true})
	add(world{limit: per(5000, hour), window: "fixed", fields: "x", clients: 10, bare: true})
	add(world{limit: per(5000, hour), window: "fixed", fields: "x", clients: 100})
	add(world{limit: per(1000, day), window: "fixed", clients: 3})
	add(world{limit: per(75, time.Minute), window: "strict", clients: 1})
	add(world{limit: per(75, time.Minute), window: "strict", clients: 10})
	add(world{limit: per(75, time.Minute), window: "strict", fields: "draft11", clients: 10})
	add(world{limit: per(600, time.Minute), window: "strict", clients: 10})
	// Clients come and go, and the limit changes.
	add(world{limit: per(4500, hour), clients: 10, join: 5, empty: true})
	add(world{limit: per(4500, hour), clients: 10, leave: 5, empty: true})
	add(world{limit: per(75, time.Minute), window: "fixed", clients: 10, join: 5})
	add(world{limit: per(4500, hour), clients: 10, rate: 0.5, empty: true})
	add(world{limit: per(4500, hour), clients: 10, rate: 2, empty: true})
	// Several server processes, each with its part of the limit.
	for _, fields := range []string{"draft6", "x"} {
		add(world{limit: per(4500, hour), fields: fields, clients: 10, servers: 4, empty: true})
	}
	// Denials alone, and fields of another limit.
	add(world{limit: per(5, time.Second).WithBurst(2), fields: "none", bare: true, clients: 1})
	add(world{limit: per(5, time.Second).WithBurst(2), fields: "none", bare: true, clients: 4, allow: bounds{share: 70, uneven: never}, why: burst2})
	add(world{limit: per(10, time.Second), lie: "day", fields: "x", bare: true, clients: 4})
	add(world{limit: per(10, time.Second), lie: "day", fields: "draft6", clients: 4})
	add(world{limit: per(10, time.Second), lie: "4000", fields: "x", bare: true, clients: 4})
	add(world{limit: per(10, time.Second), lie: "4000", fields: "draft6", clients: 4})
	return all
}

// String describes the world.
func (w *world) String() string {
	s := fmt.Sprintf("%v", w.limit)
	if w.window != "gcra" {
		s += " " + w.window
	}
	s += " " + w.fields
	if w.bare {
		s += " bare"
	}
	if w.lie != "" {
		s += " lie " + w.lie
	}
	s += fmt.Sprintf(", %d", w.clients)
	if w.processes > 0 {
		s += fmt.Sprintf(" in %d", w.processes)
	}
	if w.join > 0 {
		s += fmt.Sprintf(", %d join", w.join)
	}
	if w.leave > 0 {
		s += fmt.Sprintf(", %d leave", w.leave)
	}
	if w.rate > 0 {
		s += fmt.Sprintf(", rate x %g", w.rate)
	}
	if w.servers > 0 {
		s += fmt.Sprintf(", %d servers", w.servers)
	}
	return s
}

// contestants are the strategies in the worlds.
var contestants = [...]struct {
	name string
	make func(*world, *rand.Rand) strategy
}{
	{"adaptive", func(_ *world, random *rand.Rand) strategy { return newAdaptive(0, random) }},
	{"published", func(w *world, _ *rand.Rand) strategy {
		count := float64(w.limit.Count)
		return &increase{min: w.limit.Interval().Seconds(), decrease: func(v float64, left int64) float64 {
			return max(v*float64(left)/count, 0)
		}}
	}},
	{"Retry-After", func(*world, *rand.Rand) strategy { return obey{} }},
}

// standing is what the contestants did in a world, with each seed.
type standing struct {
	*world
	seeds [][len(contestants)]result
}

// mean returns the means of a contestant's results over the seeds.
func (s *standing) mean(contestant int) (m result) {
	n := float64(len(s.seeds))
	for _, results := range s.seeds {
		r := results[contestant]
		m.denied += r.denied / n
		m.late += r.late / n
		m.share += r.share / n
		m.uneven += r.uneven / n
	}
	return m
}

// playAll plays the worlds with so many seeds, two at a time.
func playAll(worlds []world, first uint64, seeds int, progress io.Writer) []standing {
	all := make([]standing, len(worlds))
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	free := make(chan struct{}, 2)
	for i := range worlds {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			all[i] = standing{&worlds[i], make([][len(contestants)]result, seeds)}
			for seed := range all[i].seeds {
				for k, c := range contestants {
					all[i].seeds[seed][k] = worlds[i].play(first+uint64(seed), c.make)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			done++
			fmt.Fprintf(progress, "%d/%d %s\n", done, len(worlds), worlds[i].name)
		})
	}
	wg.Wait()
	return all
}

// missed says which bounds our strategy misses with any seed; "" for none.
func (s *standing) missed(b bounds) string {
	var missed []string
	for _, c := range []struct {
		name string
		ok   func(ours, published result) bool
	}{
		{"denied", func(r, published result) bool { return r.denied <= cmp.Or(b.denied, published.denied) }},
		{"late", func(r, _ result) bool { return r.late <= cmp.Or(b.late, usual.late) }},
		{"share", func(r, _ result) bool { return r.share >= cmp.Or(b.share, usual.share) }},
		{"most/least", func(r, _ result) bool { return r.uneven <= cmp.Or(b.uneven, usual.uneven) }},
	} {
		if slices.ContainsFunc(s.seeds, func(r [len(contestants)]result) bool { return !c.ok(r[0], r[1]) }) {
			missed = append(missed, c.name)
		}
	}
	return strings.Join(missed, ", ")
}

func printWorlds(w io.Writer, all []standing, seed uint64) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "world")
	for _, c := range contestants {
		fmt.Fprintf(t, "\t%s\tlate\tshare\tmost/least", c.name)
	}
	fmt.Fprintln(t, "\tmissed\t")
	for i := range all {
		fmt.Fprint(t, all[i].name)
		for k := range contestants {
			r := all[i].mean(k)
			fmt.Fprintf(t, "\t%.2f\t%.2f\t%.1f\t%.1f", r.denied, r.late, r.share, r.uneven)
		}
		fmt.Fprintf(t, "\t%s\t\n", all[i].missed(bounds{}))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	for i := range all {
		missed := all[i].missed(bounds{})
		if missed == "" || all[i].why == "" {
			continue
		}
		r := all[i].play(seed, newSteady)
		fmt.Fprintf(w, "%s misses %s: %s. Clients that know the rate and their number: %.1f %% denied, %.1f %% share, most/least %.1f.\n",
			all[i].name, missed, all[i].why, r.denied, r.share, r.uneven)
	}
	return nil
}
