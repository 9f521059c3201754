package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// figures are what a strategy did in a draw.
type figures struct {
	refused float64 // late, in percent of the answers of the limit
	share   float64 // late, in percent of what is possible
	uneven  float64 // late, the most served client over the least served one
	recover float64 // the time until half of what is possible is used again, in allowances
}

type rival struct {
	name string
	make func(d *draw, random *rand.Rand) strategy
}

// rivals are the strategies that are compared.
var rivals = []rival{
	{"adaptive", func(_ *draw, random *rand.Rand) strategy { return newAdaptive(0, random) }},
	{"transport", func(_ *draw, random *rand.Rand) strategy { return newPlain(random) }},
	{"backoff", func(*draw, *rand.Rand) strategy { return jittery{backoff{factor: 2}} }},
	{"published", func(d *draw, _ *rand.Rand) strategy {
		l := d.limits[0]
		return jittery{&increase{min: l.window.Seconds() / float64(l.units), decrease: func(v float64, left int64) float64 {
			return v * float64(left) / float64(l.burst)
		}}}
	}},
}

// jittery is a strategy whose sleeps are longer by up to a tenth.
type jittery struct{ strategy }

// played is the state of a client.
type played struct {
	thread
	at   time.Duration // of its next step
	what step
	got  reply
	late int // allowed in the late part
}

// play runs a strategy in a draw.
func (d *draw) play(seed uint64, newStrategy func(*draw, *rand.Rand) strategy) figures {
	random := rand.New(rand.NewPCG(seed, 3))
	server := newAPI(d, random)
	clients := make([]played, d.clients)
	for i := range clients {
		c := &clients[i]
		c.thread = thread{id: i, process: newStrategy(d, random)}
		c.at = time.Duration(random.Float64() * float64(min(d.shortest(), time.Minute)))
	}
	_, jitters := clients[0].process.(jittery)

	settled, late, restored, length := d.settled(), d.late(), d.restored(), d.length()
	span := max(d.longest(), time.Minute, time.Duration(20/d.possible()*float64(time.Second)))
	again := make([]int, length/span+2) // allowed in each span after restored
	denied, answers := 0, 0
	for range maxAnswers * 6 {
		c := &clients[0]
		for i := range clients {
			if clients[i].at < c.at {
				c = &clients[i]
			}
		}
		if c.at >= length || answers >= maxAnswers {
			break
		}

		at, now := c.at, epoch.Add(c.at)
		switch c.what {
		case idle, slept:
			var sleep time.Duration
			if c.what == idle {
				sleep = c.process.sleep(now, &c.thread)
				c.sleeping = sleep
			} else {
				sleep = c.thread.again(now)
			}
			if jitters {
				sleep += time.Duration(float64(sleep) * jitter * random.Float64())
			}
			if sleep > 0 {
				c.at, c.what = at+min(sleep, maxSleep), slept
				continue
			}
			c.attempts++
			c.at, c.what = at+d.oneWay(random), atServer

		case atServer:
			c.got = server.answer(at)
			answers++
			switch refused := c.got.status == http.StatusTooManyRequests; {
			case at >= settled && at < late && refused:
				denied++
			case c.got.status != http.StatusOK || c.got.cached:
			case at >= settled && at < late:
				c.late++
			case at >= restored:
				again[(at-restored)/span]++
			}
			c.at, c.what = at+d.oneWay(random), hasAnswer

		case hasAnswer:
			c.process.answered(now, &c.thread, c.got.answer)
			c.denied, c.what = c.got.denied, idle
		}
	}
	return d.figures(clients, denied, again, span)
}

// maxSleep keeps sums of times within a Duration.
const maxSleep = 1000 * day

// oneWay is the time from the client to the partner or back.
func (d *draw) oneWay(random *rand.Rand) time.Duration {
	return (d.latency + time.Duration(random.Int64N(int64(d.latency/2)))) / 2
}

// figures are those of clients that were denied so often late, and allowed again so often after the limit was restored.
func (d *draw) figures(clients []played, denied int, again []int, span time.Duration) figures {
	most, least, sum := 0, math.MaxInt, 0
	for i := range clients {
		n := clients[i].late
		most, least, sum = max(most, n), min(least, n), sum+n
	}

	f := figures{refused: percent(denied, denied+sum), uneven: math.Inf(1), recover: math.Inf(1)}
	f.share = 100 * float64(sum) / (d.possible() * (d.late() - d.settled()).Seconds())
	if least > 0 {
		f.uneven = float64(most) / float64(least)
	}
	for i, n := range again {
		if float64(n) >= d.possible()*span.Seconds()/2 {
			f.recover = float64(i) * span.Seconds() / d.allowance().Seconds()
			break
		}
	}
	return f
}

// outcomeOf is a draw with the figures of the rivals.
type outcomeOf struct {
	*draw
	figures []figures
}

// playRandom plays n worlds that a seed draws.
func playRandom(n int, seed uint64, rivals []rival, progress io.Writer) []outcomeOf {
	all := make([]outcomeOf, n)
	var wg sync.WaitGroup
	free := make(chan struct{}, 2)
	for i := range all {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			o := outcomeOf{draw: newDraw(rand.New(rand.NewPCG(seed, uint64(i))))}
			for _, rival := range rivals {
				o.figures = append(o.figures, o.play(seed+uint64(i), rival.make))
			}
			all[i] = o
			if i%20 == 19 {
				fmt.Fprintf(progress, "%d/%d\n", i+1, n)
			}
		})
	}
	wg.Wait()
	return all
}

// printRandom prints both tables, and with each also a line for each world.
func printRandom(w io.Writer, all []outcomeOf, rivals []rival, each bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if each {
		for i := range all {
			f := all[i].figures[0]
			fmt.Fprintf(t, "%d\t%t\t%.1f\t%.1f\t%.1f\t%.2f\t  %v\n", i, all[i].main(), f.refused, f.share, f.uneven, f.recover, all[i].draw)
		}
		fmt.Fprintln(t)
	}

	for _, main := range []bool{true, false} {
		var part []outcomeOf
		for _, o := range all {
			if o.main() == main {
				part = append(part, o)
			}
		}
		if len(part) == 0 {
			continue
		}

		fmt.Fprintf(t, "%s, %d worlds\trefused %%\t5th\t95th\tworst\tshare %%\t5th\t95th\tworst\tmost/least\t5th\t95th\tworst\trecover\t5th\t95th\tworst\t\n",
			map[bool]string{true: "main", false: "others"}[main], len(part))
		for k, rival := range rivals {
			fmt.Fprint(t, rival.name)

			// A column is the median, the 5th and 95th percentile, and the worst, which is the first or the last.
			column := func(format string, of func(figures) float64, worst int) {
				values := make([]float64, len(part))
				for i := range part {
					values[i] = of(part[i].figures[k])
				}
				slices.Sort(values)
				at := func(q float64) float64 { return values[int(math.Round(q*float64(len(values)-1)))] }
				for _, q := range []float64{0.5, 0.05, 0.95, float64(max(worst, 0))} {
					fmt.Fprintf(t, "\t"+format, at(q))
				}
			}
			column("%.1f", func(f figures) float64 { return f.refused }, 1)
			column("%.1f", func(f figures) float64 { return f.share }, 0)
			column("%.2f", func(f figures) float64 { return f.uneven }, 1)
			column("%.2f", func(f figures) float64 { return f.recover }, 1)
			fmt.Fprintln(t, "\t")
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	return nil
}
