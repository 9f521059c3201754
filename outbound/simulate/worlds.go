package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

const (
	hour = time.Hour
	day  = 24 * time.Hour
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
		text := w.String()
		if w.name != "" {
			text = w.name + ": " + text
		}
		w.name = text
		all = append(all, w)
	}

	// Numbers of clients.
	add(world{limit: per(4500, hour), clients: 10, processes: 2, empty: true})
	for _, n := range []int{1, 2, 10, 30} {
		add(world{limit: per(4500, hour), clients: n, empty: true})
	}
	add(world{limit: per(4500, hour), clients: 100, empty: true})
	add(world{limit: per(4500, hour), clients: 10})

	// Other rates and bursts.
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

	// Small buckets, and many clients.
	add(world{limit: per(1, time.Second).WithBurst(1), clients: 1})
	add(world{limit: per(1, time.Second).WithBurst(1), clients: 10})
	add(world{limit: per(1, time.Second).WithBurst(10), clients: 10})
	add(world{limit: per(1, time.Second).WithBurst(2), clients: 10})
	add(world{limit: per(1, time.Second).WithBurst(5), clients: 10})
	add(world{limit: per(4500, hour), clients: 200})

	// The forms of the fields.
	for _, fields := range []string{"draft7", "draft11", "x"} {
		add(world{limit: per(75, time.Minute), fields: fields, clients: 10})
	}
	add(world{limit: per(75, time.Minute), fields: "none", clients: 10})

	// Fixed and strict windows.
	for _, fields := range []string{"draft6", "draft7", "draft11", "x"} {
		add(world{limit: per(75, time.Minute), window: "fixed", fields: fields, clients: 10})
	}
	add(world{limit: per(75, time.Minute), window: "fixed", clients: 1})
	add(world{limit: per(75, time.Minute), window: "fixed", clients: 40})
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
	add(world{limit: per(5, time.Second).WithBurst(2), fields: "none", bare: true, clients: 4})
	add(world{limit: per(10, time.Second), lie: "day", fields: "x", bare: true, clients: 4})
	add(world{limit: per(10, time.Second), lie: "day", fields: "draft6", clients: 4})
	add(world{limit: per(10, time.Second), lie: "4000", fields: "x", bare: true, clients: 4})
	add(world{limit: per(10, time.Second), lie: "4000", fields: "draft6", clients: 4})

	// Partners that tell nothing.
	silent := func(limit gcra.Limit, window string, clients ...int) {
		for _, n := range clients {
			add(world{limit: limit, window: window, fields: "none", bare: true, clients: n})
		}
	}
	silent(per(60, time.Minute), "fixed", 1, 10)
	silent(per(900, 15*time.Minute), "fixed", 1, 10)
	silent(per(5000, hour), "fixed", 1, 10)
	silent(per(10_000, day), "fixed", 3)
	silent(per(50, 10*time.Second), "fixed", 1)
	silent(per(100, 10*time.Second), "fixed", 10)
	silent(per(300, 5*time.Minute), "fixed", 4)
	silent(per(20, time.Second), "fixed", 10)
	silent(per(100, time.Minute), "strict", 1, 5)
	silent(per(60, hour), "gcra", 1)
	silent(per(5000, hour), "gcra", 3)
	silent(per(1, time.Second).WithBurst(1), "gcra", 1)
	silent(per(25, time.Second), "gcra", 10)
	silent(per(5, time.Second), "gcra", 1)
	add(world{limit: per(10, time.Second), fields: "none", bare: true, clients: 30})
	add(world{limit: per(60, time.Minute), window: "fixed", fields: "none", bare: true, clients: 6, join: 3})
	add(world{limit: per(600, time.Minute), window: "fixed", fields: "none", bare: true, clients: 2, rate: 0.2})
	add(world{limit: per(10, time.Second), fields: "none", bare: true, clients: 5, rate: 2})

	// Partners of the real world.
	add(world{name: "GitHub", limit: per(5000, hour), window: "fixed", fields: "x", clients: 10, second: per(100, time.Minute)})
	add(world{name: "Shopify", limit: per(2, time.Second).WithBurst(40), fields: "shopify", clients: 10})
	add(world{name: "Discord", limit: per(5, 5*time.Second), window: "fixed", fields: "discord", clients: 4})
	add(world{name: "Discord", limit: per(5, 5*time.Second), window: "fixed", fields: "discord", clients: 1})
	add(world{name: "Slack", limit: per(50, time.Minute), window: "fixed", fields: "none", clients: 5})
	add(world{name: "AWS", limit: per(10, time.Second).WithBurst(20), fields: "none", bare: true, clients: 10})
	add(world{name: "two policies", limit: per(10, time.Second), fields: "draft11", clients: 10, second: per(1000, 5*time.Minute)})
	add(world{name: "outages", limit: per(4500, hour), clients: 10, outage: true})
	add(world{name: "herd", limit: per(50, time.Second).WithBurst(100), clients: 200})
	add(world{name: "restarts", limit: per(2, time.Second).WithBurst(100), clients: 10, restart: true})
	add(world{limit: per(100, time.Minute), window: "strict", clients: 10})
	add(world{name: "Twitter", limit: per(900, 15*time.Minute), window: "fixed", fields: "twitter", bare: true, clients: 10})
	add(world{name: "Atlassian", limit: per(100, 10*time.Second), window: "fixed", fields: "iso", clients: 10})
	add(world{name: "GitLab", limit: per(600, time.Minute), window: "fixed", fields: "gitlab", clients: 10})
	add(world{name: "OpenAI", limit: per(3, time.Second).WithBurst(60), fields: "openai", clients: 10})
	add(world{name: "Reddit", limit: per(600, 10*time.Minute), window: "fixed", fields: "reddit", clients: 10})
	add(world{name: "a clock ahead", limit: per(100, time.Minute), window: "fixed", fields: "date", clients: 10})
	add(world{name: "slow", limit: per(5, time.Second).WithBurst(60), clients: 40, slow: true})
	add(world{name: "Zendesk", limit: per(400, time.Minute), window: "fixed", fields: "zendesk", clients: 10})
	add(world{limit: per(10, 4*time.Second), window: "fixed", clients: 5})
	add(world{limit: per(100, time.Minute), window: "fixed", fields: "x", bare: true, clients: 10})
	add(world{limit: per(100, time.Minute).WithBurst(100), fields: "remaining", clients: 4})
	add(world{limit: per(10, time.Second), fields: "x", clients: 10, rate: 0.2})
	add(world{limit: per(10, time.Second), fields: "x", clients: 10, rate: 2})

	// Worlds that were not looked at while the pacer was made, so that they show what it does in a new one.
	// Where an API has several limits, this is the one that a caller without pause meets first.
	//
	// developers.cloudflare.com/fundamentals/api/reference/limits
	add(world{name: "Cloudflare", limit: per(1200, 5*time.Minute), window: "fixed", fields: "draft11", clients: 8})
	// developer.okta.com/docs/reference/rl-best-practices
	add(world{name: "Okta", limit: per(600, time.Minute), window: "fixed", fields: "twitter", bare: true, clients: 6})
	// developers.intercom.com/docs/references/rest-api/errors/rate-limiting: 1000 a minute in parts of 10 seconds
	add(world{name: "Intercom", limit: per(166, 10*time.Second), window: "fixed", fields: "x", bare: true, clients: 5})
	// auth0.com/docs/troubleshoot/customer-support/operational-policies/rate-limit-policy: organizations
	add(world{name: "Auth0", limit: per(100, time.Minute).WithBurst(10), fields: "x", clients: 3})
	// developers.notion.com/reference/request-limits
	add(world{name: "Notion", limit: per(3, time.Second).WithBurst(10), fields: "none", clients: 4})
	// developer.spotify.com/documentation/web-api/concepts/rate-limits: a rolling window of 30 seconds
	add(world{name: "Spotify", limit: per(180, 30*time.Second), window: "strict", fields: "none", clients: 5})

	// docs.digitalocean.com/reference/api: the reset is when the oldest request expires
	add(world{name: "DigitalOcean", limit: per(5000, hour), window: "strict", fields: "gitlab", clients: 4})
	// developers.hubspot.com/docs/guides/apps/api-usage/usage-details
	add(world{name: "HubSpot", limit: per(190, 10*time.Second), window: "strict", fields: "none", bare: true, clients: 6})
	// developer.xero.com/documentation/guides/oauth2/limits
	add(world{name: "Xero", limit: per(60, time.Minute), window: "strict", fields: "none", clients: 2})
	// developers.strava.com/docs/rate-limits: in fields that are not read
	add(world{name: "Strava", limit: per(200, 15*time.Minute), window: "fixed", fields: "none", bare: true, clients: 2})
	// docs.docker.com/docker-hub/usage/pulls
	add(world{name: "Docker Hub", limit: per(100, 6*hour), window: "fixed", fields: "remaining", clients: 2})
	// developer-docs.amazon.com/sp-api/docs/usage-plans-and-rate-limits: getOrders
	add(world{name: "Amazon SP-API", limit: per(1, time.Minute).WithBurst(20), fields: "none", bare: true, clients: 2})
	// docs.cdp.coinbase.com/exchange/rest-api/rate-limits
	add(world{name: "Coinbase", limit: per(10, time.Second).WithBurst(15), fields: "none", bare: true, clients: 3})
	// learn.microsoft.com/graph/throttling-limits: Outlook
	add(world{name: "Microsoft Graph", limit: per(10_000, 10*time.Minute), window: "fixed", fields: "none", clients: 8})
	// developers.google.com/sheets/api/limits
	add(world{name: "Google Sheets", limit: per(300, time.Minute), window: "fixed", fields: "none", bare: true, clients: 12})
	// airtable.com/developers/web/api/rate-limits: blocks for 30 seconds
	add(world{name: "Airtable", limit: per(5, time.Second), window: "fixed", fields: "none", bare: true, clients: 1, block: 30 * time.Second})
	// docs.cdp.coinbase.com/prime/rest-api/rate-limits: an address, blocked for 30 seconds
	add(world{name: "Coinbase Prime", limit: per(100, time.Second), window: "fixed", fields: "none", bare: true, clients: 20, block: 30 * time.Second})
	// The first of these, as its page says it: all requests of the next five minutes are denied.
	add(world{name: "Cloudflare", limit: per(1200, 5*time.Minute), window: "fixed", fields: "draft11", clients: 8, block: 5 * time.Minute})
	return all
}

// String describes the world.
func (w *world) String() string {
	s := w.limit.String()
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
	if w.second != (gcra.Limit{}) {
		s += ", and " + w.second.String()
	}
	if w.servers > 0 {
		s += fmt.Sprintf(", %d servers", w.servers)
	}
	if w.block > 0 {
		s += fmt.Sprintf(", blocks for %v", w.block)
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

func printWorlds(w io.Writer, all []standing) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "world")
	for _, c := range contestants {
		fmt.Fprintf(t, "\t%s\tlate\tshare\tmost/least", c.name)
	}
	fmt.Fprintln(t, "\t")

	for i := range all {
		fmt.Fprint(t, all[i].name)
		for k := range contestants {
			r := all[i].mean(k)
			fmt.Fprintf(t, "\t%.2f\t%.2f\t%.1f\t%.1f", r.denied, r.late, r.share, r.uneven)
		}
		fmt.Fprintln(t, "\t")
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	return nil
}
