package redisstore_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// granted takes units from the local store.
func granted(t testing.TB, r *redisstore.Store, instances int, c gcra.Charge) {
	t.Helper()
	if res, err := gcra.Take(t.Context(), r.Local(instances), c); err != nil || !res.Allowed {
		t.Fatalf("the local store: got %+v, %v; want %d units", res, err, c.Cost)
	}
}

// What the local store has granted is charged in Redis, also on keys that nobody asks
// for again, and once.
func TestGrantsAreReported(t *testing.T) {
	t.Parallel()
	quota := func(subject string) gcra.Charge {
		return gcra.Charge{Subject: subject, Policy: "q", Limit: gcra.Quota(100, gcra.Yearly), Cost: 3}
	}
	for name, open := range map[string]func(t *testing.T) redis.UniversalClient{
		"Real": func(t *testing.T) redis.UniversalClient { return realRedis(t) },
		"Ring": func(t *testing.T) redis.UniversalClient {
			a, b := redistest.Start(t), redistest.Start(t)
			ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr, "b": b.Addr}})
			t.Cleanup(func() { ring.Close() })
			return ring
		},
		"Cluster": func(t *testing.T) redis.UniversalClient { return redistest.StartCluster(t).Client() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := open(t)
			cfg := config{Prefix: newPrefix()}
			r, other := newStore(t, client, cfg), newStore(t, client, cfg)
			const keys = 300
			gcratest.MustTake(t, r, hourly("known", 10))

			for i := range keys {
				c := hourly(fmt.Sprint("s", i), 10)
				c.Cost = int64(1 + i%3)
				granted(t, r, 1+i%2, c)
				granted(t, r, 1+i%2, quota(fmt.Sprint("s", i)))
			}

			granted(t, r, 1, hourly("known", 10))
			redistest.Eventually(t, patience, "all grants to be reported", func() bool {
				s := r.Stats()
				return s.ReportedUnits == s.LocalUnits && s.LocalUnits == keys*(1+2+3)/3+3*keys+1
			})

			for i := range keys {
				if got, want := spent(t, other, fmt.Sprint("s", i), 10), int64(1+i%3); got != want {
					t.Fatalf("key %d: got %d units in Redis; want %d", i, got, want)
				}
				peek, err := gcra.Peek(t.Context(), other, gcra.Charge{Subject: fmt.Sprint("s", i), Policy: "q", Limit: gcra.Quota(100, gcra.Yearly)})
				if err != nil || peek.Remaining != 97 {
					t.Fatalf("quota %d: got %+v, %v; want 97 of 100 left", i, peek, err)
				}
			}

			if got := spent(t, other, "known", 10); got != 2 {
				t.Errorf("a key that Redis knew: got %d units; want 2", got)
			}
			if got := spent(t, r, "s2", 10); got != 3 {
				t.Errorf("the store that has reported: got %d units; want 3", got)
			}
		})
	}
}

// A report whose reply is lost is made again, and charged once.
func TestReportIsChargedOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	r := openStore(t, "redis://"+proxy.Addr+"/0", config{Logger: quiet})
	other := openStore(t, server.URL(), config{Timeout: patience, DenialTTL: -1})
	gcratest.MustTake(t, other, hourly("s", 100))

	for i := range int64(5) {
		proxy.DropReply(1)
		granted(t, r, 1, hourly("s", 100))
		redistest.Eventually(t, patience, "the report", func() bool { return r.Stats().ReportedUnits == i+1 })
		if got := spent(t, other, "s", 100); got != i+2 {
			t.Fatalf("got %d units in Redis; want %d", got, i+2)
		}
	}

	if proxy.Dropped() != 5 {
		t.Errorf("%d replies were lost; want 5", proxy.Dropped())
	}
}

// A refund of a local charge takes it from what is unreported or, if that is charged already, from Redis.
func TestUnreportedIsRefunded(t *testing.T) {
	for name, tt := range map[string]struct{ byOthers, reported, spent int64 }{
		"unreported": {0, 0, 5}, "reported": {0, 4, 5}, "reported in part, as the bucket is full": {3, 3, 8},
	} {
		t.Run(name, func(t *testing.T) {
			client := anyRedis(t)
			r := newStore(t, client, config{})
			c := hourly("s", 10)
			c.Cost = 4
			gcratest.MustTake(t, r, c)
			if tt.byOthers > 0 {
				others := c
				others.Cost = tt.byOthers
				gcratest.MustTake(t, newStore(t, client, config{Prefix: r.Prefix()}), others)
			}

			granted(t, r, 1, c)
			redistest.Eventually(t, patience, "the report", func() bool { return r.Stats().ReportedUnits >= tt.reported })
			c.Cost = 3

			if err := r.Local(1).Refund(t.Context(), []gcra.Charge{c}); err != nil {
				t.Fatal(err)
			}
			redistest.Eventually(t, patience, "the units to be back", func() bool { return spent(t, r, "s", 10) == tt.spent })
		})
	}
}

// What is charged in Redis already cannot be refunded while Redis is away again, and the error says so.
func TestRefundInTheNextOutage(t *testing.T) {
	server := redistest.Start(t)
	r := openStore(t, server.URL(), config{Logger: quiet})
	redistest.Eventually(t, patience, "an answer", func() bool { return answers(r) })
	c := hourly("s", 10)
	granted(t, r, 1, c)
	redistest.Eventually(t, patience, "the report", func() bool { return r.Stats().ReportedUnits == 1 })

	server.Pause()
	breakerOpens(t, r)
	if err := r.Local(1).Refund(t.Context(), []gcra.Charge{c}); !errors.Is(err, redisstore.ErrUnavailable) {
		t.Errorf("got %v; want ErrUnavailable", err)
	}
}

// The keys that are kept are bounded. Grants on others are counted and logged.
func TestUnreportedIsBounded(t *testing.T) {
	log := new(diagtest.Text)
	r := openStore(t, "redis://127.0.0.1:1/0", config{Logger: log.Logger()}) // nothing listens there
	const most, beyond = 1 << 16, 100
	for i := range most + beyond {
		granted(t, r, 1, hourly(fmt.Sprint("s", i), 10))
	}
	if s := r.Stats(); s.LocalUnits != most+beyond || s.LostUnits != beyond || s.ReportedUnits != 0 {
		t.Errorf("got %d units granted, %d that are not kept; want %d, %d", s.LocalUnits, s.LostUnits, most+beyond, beyond)
	}
	redistest.Eventually(t, patience, "a line in the log", func() bool { return len(log.Lines("code=redis-grants")) > 0 })
	if lines := log.Lines("code=redis-grants"); len(lines) != 1 {
		t.Errorf("got %d lines; want 1: %q", len(lines), lines)
	}
}

// reporters is how many goroutines report for a store. A stack names the receiver.
func reporters(r *redisstore.Store) int {
	all := make([]byte, 8<<20)
	return strings.Count(string(all[:runtime.Stack(all, true)]), fmt.Sprintf(".(*reporter).loop(%p", r.Reporter()))
}

// While there is something to report one goroutine does so. Then it ends, also if a report is impossible: Redis has a TAT beyond
// the clamp of the limit, as after a change of limits or of its clock.
func TestReporterEnds(t *testing.T) {
	t.Parallel() // it counts the goroutines of its own store
	client, cfg := anyRedis(t), config{Prefix: newPrefix()}
	r := newStore(t, client, cfg)
	const rounds = 3
	for i := range rounds {
		gcratest.MustTake(t, r, hourly("s", 100))
		granted(t, r, 1, hourly("s", 100))
		if got := reporters(r); got > 1 {
			t.Errorf("round %d: %d goroutines report; want 1", i, got)
		}
		redistest.Eventually(t, patience, "all to be reported, and the goroutine to end", func() bool {
			return r.Stats().ReportedUnits == int64(i+1) && reporters(r) == 0
		})
	}
	if got := spent(t, r, "s", 100); got != 2*rounds {
		t.Errorf("got %d units in Redis; want %d", got, 2*rounds)
	}

	much := hourly("another limit", 100)
	much.Cost = 50
	gcratest.MustTake(t, newStore(t, client, cfg), much)
	granted(t, r, 1, hourly("another limit", 10))
	redistest.Eventually(t, patience, "the goroutine to end", func() bool { return reporters(r) == 0 })
}

// A store that is closed reports nothing more, and keeps no grants. What was refunded before
// is not among the units that will not be charged.
func TestReporterEndsWithTheStore(t *testing.T) {
	log := new(diagtest.Text)
	r, err := redisstore.Open("redis://127.0.0.1:1/0", config{Logger: log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	c := hourly("s", 10)
	c.Cost = 3
	granted(t, r, 1, c)
	c.Cost = 2

	if err := r.Local(1).Refund(t.Context(), []gcra.Charge{c}); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, patience, "the goroutine to end", func() bool { return reporters(r) == 0 })
	granted(t, r, 1, hourly("s", 10))
	if got := r.Stats().LostUnits; got != 2 || reporters(r) != 0 {
		t.Errorf("after Close: got %d units that are not kept, %d goroutines; want 2, 0", got, reporters(r))
	}

	if lines := log.Lines("code=redis-grants"); len(lines) > 0 {
		t.Errorf("after Close the log has %q", lines)
	}
}

// Nor does a store whose client is closed, after two rounds.
func TestReporterEndsWithTheClient(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	r := storeOn(t, client, config{Logger: quiet})
	granted(t, r, 1, hourly("s", 10))
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, patience, "the goroutine to end", func() bool { return reporters(r) == 0 && r.Stats().LostUnits == 1 })
}

// A shard that leaves a ring in the middle of a report does not end the reports.
func TestReportsOutliveAShard(t *testing.T) {
	a, b := redistest.Start(t), redistest.Start(t)

	var ring *redis.Ring
	replace := make(chan struct{}, 1)
	ring = redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr}, NewClient: func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		c.AddHook(scriptHook(func(redis.Cmder) error {
			select {
			case <-replace:
				ring.SetAddrs(map[string]string{"b": b.Addr}) // closes the client of a
			default:
			}
			return nil
		}))

		return c
	}})

	t.Cleanup(func() { ring.Close() })
	r := newStore(t, ring, config{})
	gcratest.MustTake(t, r, hourly("s", 10))
	replace <- struct{}{}
	for i := range int64(2) {
		granted(t, r, 1, hourly("s", 10))
		redistest.Eventually(t, patience, "the report", func() bool { return r.Stats().ReportedUnits == i+1 })
	}
}
