package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/overrides"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware/fleet"
)

// faulty is a Redis with a fault.
type faulty struct {
	dial  func() redis.UniversalClient // of a server of the API
	url   func() string                // for the command
	fails func()
	back  func() // may be nil: the others go on without the server that fails
	empty bool   // it loses its data
}

// clientOf returns a client as Open makes it.
func clientOf(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	o, err := redisstore.ClientOptions(url)
	if err != nil {
		t.Fatal(err)
	}
	return redis.NewUniversalClient(o)
}

func oneRedis(t *testing.T) (*redistest.Server, *faulty) {
	s := redistest.Start(t)
	return s, &faulty{dial: func() redis.UniversalClient { return clientOf(t, s.URL()) }, url: s.URL}
}

func killed(t *testing.T) *faulty {
	s, f := oneRedis(t)
	f.fails, f.back, f.empty = s.Kill, s.Restart, true
	return f
}

func suspended(t *testing.T) *faulty {
	s, f := oneRedis(t)
	f.fails, f.back = s.Pause, s.Resume
	return f
}

func failover(t *testing.T) *faulty {
	s := redistest.StartSentinel(t)
	var old *redistest.Server
	return &faulty{
		dial: func() redis.UniversalClient { return redis.NewFailoverClient(s.Options()) },
		url:  func() string { return s.Master().URL() },
		fails: func() {
			old = s.Master()
			old.AwaitReplicas(len(s.Replicas()))
			old.Kill()
		},
		back: func() {
			s.Successor(old)
			s.Stay() // another failover may lose what the command sets
		},
	}
}

func nodeKilled(t *testing.T) *faulty {
	c := redistest.StartCluster(t)
	return &faulty{
		dial:  func() redis.UniversalClient { return clientOf(t, urlOf(c)) },
		url:   func() string { return urlOf(c) },
		fails: func() { masterOf(t, c).Kill() },
	}
}

func nodeSuspended(t *testing.T) *faulty {
	c := redistest.StartCluster(t)
	return &faulty{
		dial:  func() redis.UniversalClient { return clientOf(t, urlOf(c)) },
		url:   func() string { return urlOf(c) },
		fails: func() { masterOf(t, c).Pause() },
	}
}

func urlOf(c *redistest.Cluster) string { return "redis://" + strings.Join(c.Addrs(), ",") }

// masterOf returns the node that has the overrides.
func masterOf(t *testing.T, c *redistest.Cluster) *redistest.Server {
	client, err := c.Client().MasterForKey(t.Context(), overrides.Key("rl:"))
	if err != nil {
		t.Fatal(err)
	}
	node := c.Nodes[slices.Index(c.Addrs(), client.Options().Addr)]
	node.AwaitReplicas(1)
	return node
}

// looks counts how often a client looks for changes.
type looks struct{ n atomic.Int64 }

func (l *looks) DialHook(next redis.DialHook) redis.DialHook { return next }
func (l *looks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *looks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hget" {
			l.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

// While a Redis fails, the bans that are known stay and end. After it answers the command again,
// every server follows what the command sets within three looks, of which there is one every two
// seconds.
func TestOverridesUnderFaults(t *testing.T) {
	t.Parallel()
	logging.Disable() // dials that fail
	for name, start := range map[string]func(*testing.T) *faulty{
		"killed": killed, "suspended": suspended, "failover": failover, "node killed": nodeKilled, "node suspended": nodeSuspended,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t)

			var servers []http.Handler
			var looked []*looks
			for range 3 {
				client, l := f.dial(), new(looks)
				t.Cleanup(func() { client.Close() })
				client.AddHook(l)
				store, err := redisstore.New(client, redisstore.Config{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				o, err := fleet.New(t.Context(), fleet.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}

				limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Override: o.Find, BanStatus: http.StatusForbidden},
					ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1_000_000)})
				servers = append(servers, limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
				looked = append(looked, l)
			}

			everywhere := func(addr, want string) {
				t.Helper()
				for i, h := range servers {
					redistest.Eventually(t, busyMachine, fmt.Sprintf("%s to get %s from server %d", addr, want, i), func() bool { return get(h, addr) == want })
				}
			}

			run := func(args ...string) error { return spawn(t, append(args, "--redis", f.url())...) }
			must := func(args ...string) {
				t.Helper()
				if err := run(args...); err != nil {
					t.Fatal(err)
				}
			}

			must("ban", "ip:192.0.2.1", "--for", "5s")
			must("ban", "ip:192.0.2.2", "--for", "1h")
			everywhere("192.0.2.2", "403true")

			f.fails()
			everywhere("192.0.2.1", "200false")

			for i, h := range servers {
				if got := get(h, "192.0.2.2"); got != "403true" {
					t.Errorf("server %d: got %s while Redis is away; want the ban", i, got)
				}
			}

			if f.back != nil {
				f.back()
			}

			redistest.Eventually(t, 2*busyMachine, "the command", func() bool { return run("ban", "ip:192.0.2.3", "--for", "1h") == nil })
			before, after, start := make([]int64, len(looked)), map[int]int64{}, time.Now()
			for i, l := range looked {
				before[i] = l.n.Load()
			}
			redistest.Eventually(t, busyMachine, "192.0.2.3 to be banned on every server", func() bool {
				for i, h := range servers {
					if _, done := after[i]; !done && get(h, "192.0.2.3") == "403true" {
						after[i] = looked[i].n.Load() - before[i]
					}
				}
				return len(after) == len(servers)
			})
			t.Logf("a change was followed after %v", time.Since(start).Round(time.Millisecond))
			for i, n := range after {
				if n > 3 {
					t.Errorf("server %d: followed a change after %d looks; want 3 at most", i, n)
				}
			}

			if !f.empty {
				must("override", "unset", "ip:192.0.2.2")
			}
			everywhere("192.0.2.2", "200false")
		})
	}
}

// spawn runs the command in a process of its own.
func spawn(t *testing.T, args ...string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "RATELIMIT_TEST_MAIN=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w\n%s", args, err, out)
	}
	return nil
}
