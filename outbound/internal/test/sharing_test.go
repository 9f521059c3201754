package test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
	"github.com/seed-e377111c/ratelimit/outbound/internal/retryafter"
)

// afterDenial is an http.RoundTripper that waits after each denial and then returns it.
type afterDenial struct {
	base   http.RoundTripper
	wait   func(denial http.Header, inARow int) time.Duration
	inARow int // denials
}

func (c *afterDenial) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.base.RoundTrip(r)
	if err != nil || response.StatusCode == http.StatusOK {
		c.inARow = 0
		return response, err
	}
	c.inARow++
	select {
	case <-time.After(c.wait(response.Header, c.inARow)):
	case <-r.Context().Done():
	}
	return response, nil
}

// A strategy makes clients that share a limit and do not know of each other.
type strategy struct {
	name  string
	build func(base http.RoundTripper) http.RoundTripper
}

// strategies are our clients and two that only wait after a denial.
func strategies() (all []strategy) {
	for _, c := range clients {
		all = append(all, strategy{c.name, func(base http.RoundTripper) http.RoundTripper {
			return c.build(httpclient.Config{Base: base})
		}})
	}

	for name, wait := range map[string]func(http.Header, int) time.Duration{
		"Retry-After only": func(denial http.Header, _ int) time.Duration {
			wait, _ := retryafter.Parse(denial, time.Now())
			return wait
		},
		"exponential backoff": func(_ http.Header, inARow int) time.Duration {
			return 50 * time.Millisecond << min(inARow, 8)
		},
	} {
		all = append(all, strategy{name, func(base http.RoundTripper) http.RoundTripper {
			return &afterDenial{base: base, wait: wait}
		}})
	}
	return all
}

// A group is ten clients of a strategy and their server, our middleware.
type group struct {
	server  *partner // counts the allowed calls
	store   gcra.Store
	limit   gcra.Limit
	sent    []*exchanges // by client
	clients []*http.Client
}

const groupKey = "all"

func startGroup(t *testing.T, l gcra.Limit, s strategy) *group {
	g := &group{server: startPartner(t), store: gcra.NewMemory(), limit: l}
	limit := ratelimit.New(ratelimit.Config{Store: g.store}, ratelimit.Policy{
		Name: groupKey, Limit: g.limit, Key: func(*http.Request) (string, error) { return groupKey, nil },
	})
	g.server.Config.Handler = limit(g.server.Config.Handler)
	for range 10 {
		base := new(http.Transport)
		t.Cleanup(base.CloseIdleConnections)
		x := &exchanges{base: base}
		g.sent = append(g.sent, x)
		g.clients = append(g.clients, &http.Client{Transport: s.build(x)})
	}
	return g
}

// call lets the clients call until end returns. It returns how often a client saw a denial.
func (g *group) call(t *testing.T, end func()) (denied int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var seen atomic.Int64
	var calling sync.WaitGroup

	for i, client := range g.clients {
		calling.Go(func() {
			for ctx.Err() == nil {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint(g.server.URL, "/", i), nil)
				if err != nil {
					t.Error(err)
					return
				}

				response, err := client.Do(r)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				response.Body.Close() // a denial is small enough to be read by that
				if response.StatusCode != http.StatusOK {
					seen.Add(1)
				}
			}
		})
	}

	end()
	cancel()
	calling.Wait()
	return seen.Load()
}

// Ten clients that do not know of each other call our middleware without pause. Its limit is 15 a second with
// a burst of 300, and its bucket is empty at first. After two minutes the bucket is filled, and they use it up.
// Until then 5 % of the limit is in the bucket, which an Adaptive lets fill up to its reserve, and the shares
// of its clients are not yet equal: TestWorlds of outbound/simulate plays an hour. In the short form the limit
// is 60 a second, and they call for 6 seconds.
func TestSharing(t *testing.T) {
	t.Parallel()
	limit, lasting := gcra.PerSecond(60), 6*time.Second
	if long {
		limit, lasting = gcra.PerSecond(15).WithBurst(300), 2*time.Minute
	}
	tab := newTable(t, "10 clients", "sent", "denied %", "denied to the caller %", "share of the limit %", "most/least", "bucket cleared in")
	var mu sync.Mutex
	denied := map[string]float64{} // percent of what was sent, by strategy
	t.Run("strategies", func(t *testing.T) {
		for _, s := range strategies() {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()

				g := startGroup(t, limit, s)
				if _, err := gcra.Take(t.Context(), g.store, gcra.Charge{Subject: groupKey, Policy: groupKey, Limit: g.limit, Cost: g.limit.Capacity()}); err != nil {
					t.Fatal(err)
				}
				toCaller := g.call(t, func() { <-time.After(lasting) })

				sent, onTheWay := 0, 0
				for _, x := range g.sent {
					sent += len(x.log)
					onTheWay += x.denials().all
				}

				allowed := g.server.calls()
				served, fewest, most := g.server.perCaller()
				percent := func(n, of float64) float64 { return math.Round(10000*n/of) / 100 }
				share := percent(float64(allowed), lasting.Seconds()*float64(g.limit.Count))
				uneven := float64(most) / float64(fewest)

				if err := gcra.Reset(t.Context(), g.store, gcra.Charge{Subject: groupKey, Policy: groupKey, Limit: g.limit}); err != nil {
					t.Fatal(err)
				}
				full, last := time.Now(), allowed+int(g.limit.Capacity())
				g.call(t, func() {
					redistest.Eventually(t, time.Minute, "a full bucket of calls", func() bool { return g.server.calls() >= last })
				})
				g.server.Close()
				took := g.server.at[last-1].Sub(full)

				d := percent(float64(onTheWay), float64(sent))
				mu.Lock()
				denied[s.name] = d
				mu.Unlock()
				tab.add(s.name, sent, d, percent(float64(toCaller), float64(sent)), share, math.Round(100*uneven)/100, took.Round(10*time.Millisecond))
				if !strings.Contains(s.name, "Adaptive") {
					return
				}

				if served < len(g.clients) {
					t.Errorf("%d clients were served; want %d", served, len(g.clients))
				}
				if long && (d > 5 || share < 90 || uneven > 6 || took > 20*time.Second) {
					t.Errorf("%v %% denied, %v %% of the limit, most/least %.2f, cleared in %v; want at most 5, at least 90, at most 6, at most 20s", d, share, uneven, took)
				}
			})
		}
	})
	for name, d := range denied {
		if most, played := denied["Retry-After only"]; played && strings.Contains(name, "Adaptive") && d >= most {
			t.Errorf("%s: %v %% denied; want less than with Retry-After only, %v %%", name, d, most)
		}
	}
}
