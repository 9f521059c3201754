package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
)

// aclLines are the ACL rules of SECURITY.md by user.
func aclLines(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := make(map[string][]string)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[0] == "ACL" && fields[1] == "SETUSER" {
			lines[fields[2]] = fields[3:]
		}
	}

	// What the page adds to a line.
	with := func(user, right string) []string { return append(slices.Clone(lines[user]), right) }
	lines["limiter-database"] = with("limiter", "+select")
	lines["limiter-cluster"] = with("limiter", "+cluster|slots")
	lines["limiter-log-cluster"] = with("limiter-log", "+cluster|slots")
	return lines
}

// TestACL runs the stores as a Redis user with the rights that SECURITY.md lists, and
// again without each of the commands, so that none is superfluous.
func TestACL(t *testing.T) {
	t.Parallel()
	lines := aclLines(t)
	for user, start := range map[string]func(t *testing.T) ([]*redistest.Server, func() redis.UniversalClient){
		"limiter": func(t *testing.T) ([]*redistest.Server, func() redis.UniversalClient) {
			s := redistest.Start(t)
			return []*redistest.Server{s}, func() redis.UniversalClient {
				o := s.Options()
				o.Username, o.Password, o.ReadTimeout = "limiter", "long-random-password", ample
				return closing(t, redis.NewClient(o))
			}
		},

		"limiter-database": func(t *testing.T) ([]*redistest.Server, func() redis.UniversalClient) {
			s := redistest.Start(t)
			return []*redistest.Server{s}, func() redis.UniversalClient {
				o, err := redisstore.ClientOptions("redis://limiter-database:long-random-password@" + s.Addr + "/3?read_timeout=" + ample.String())
				if err != nil {
					t.Fatal(err)
				}
				return closing(t, redis.NewUniversalClient(o))
			}
		},

		"limiter-log": func(t *testing.T) ([]*redistest.Server, func() redis.UniversalClient) {
			s := redistest.Start(t)
			return []*redistest.Server{s}, func() redis.UniversalClient {
				o := s.Options()
				o.Username, o.Password, o.ReadTimeout = "limiter-log", "long-random-password", ample
				return closing(t, redis.NewClient(o))
			}
		},

		"limiter-cluster":     onACLCluster("limiter-cluster"),
		"limiter-log-cluster": onACLCluster("limiter-log-cluster"),
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			rules := lines[user]
			if len(rules) == 0 {
				t.Fatalf("SECURITY.md has no line ACL SETUSER %s", user)
			}

			limits := limits
			if strings.HasPrefix(user, "limiter-log") {
				limits = logs
			}
			servers, client := start(t)

			// Not in the lines of SECURITY.md: Redis 7.0 does not know it, and clients of
			// redisstore.ClientOptions need it on no server.
			const setInfo = "+client|setinfo"
			if err := servers[0].Client().Do(t.Context(), "acl", "setuser", "nobody", setInfo).Err(); err == nil {
				if user != "limiter-database" {
					rules = append(rules, setInfo)
				}
			} else if !strings.Contains(err.Error(), "Unknown command or category name in ACL") {
				t.Fatal(err)
			}

			grant := func(rules []string) {
				for _, s := range servers {
					do(t, s, "acl", "deluser", user)
					args := []any{"acl", "setuser", user, "reset"}
					for _, rule := range rules {
						args = append(args, rule)
					}
					do(t, s, args...)
					do(t, s, "script", "flush")
				}
			}

			for i := range rules {
				rules[i] = strings.ReplaceAll(rules[i], "PASSWORD", "long-random-password")
			}
			grant(rules)
			c := client()
			if err := limits(t, c, user); err != nil {
				t.Errorf("as %s with %q: %v", user, rules, err)
			}
			if n := denials(t, servers); n != 0 {
				t.Errorf("as %s with %q: %d entries in the ACL log; want none", user, rules, n)
			}

			// The user can do no more than that.
			for _, args := range [][]any{{"set", "elsewhere", "1"}, {"keys", "*"}, {"flushall"}, {"config", "get", "*"}, {"del", "rl:{a}:p"}, {"acl", "list"}, {"debug", "sleep", "0"}} {
				if err := c.Do(t.Context(), args...).Err(); !redis.HasErrorPrefix(err, "NOPERM") {
					t.Errorf("%v as %s: got %v; want NOPERM", args, user, err)
				}
			}

			if err := c.Close(); err != nil {
				t.Error(err)
			}
			denials(t, servers)

			for i, rule := range rules {
				if !strings.HasPrefix(rule, "+") {
					continue
				}
				grant(append(append([]string{}, rules[:i]...), rules[i+1:]...))
				without := client()
				err := limits(t, without, fmt.Sprint(user, i))

				// Background commands of this client must not count for the next one.
				if closeErr := without.Close(); closeErr != nil {
					t.Error(closeErr)
				}
				if denied := denials(t, servers); err == nil && denied == 0 {
					t.Errorf("without %s nothing failed as %s; want only necessary words in the line", rule, user)
				}
			}
		})
	}
}

// onACLCluster starts a cluster, and clients of it as the user.
func onACLCluster(user string) func(t *testing.T) ([]*redistest.Server, func() redis.UniversalClient) {
	return func(t *testing.T) ([]*redistest.Server, func() redis.UniversalClient) {
		c := redistest.StartCluster(t)
		return c.Nodes, func() redis.UniversalClient {
			o := c.Options()
			o.Username, o.Password, o.ReadTimeout = user, "long-random-password", ample
			return closing(t, redis.NewClusterClient(o))
		}
	}
}

// A Ring pings its servers, which it otherwise takes for dead.
func TestACLOfARing(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
	for _, right := range []string{"+ping", "-ping"} {
		addrs := make(map[string]string)
		for _, s := range servers {
			addrs[s.Addr] = s.Addr
			args := []any{"acl", "setuser", "limiter", "reset"}
			for _, rule := range append(aclLines(t)["limiter"], right) {
				args = append(args, strings.ReplaceAll(rule, "PASSWORD", "long-random-password"))
			}
			do(t, s, args...)
			redistest.ResetStats(t, s.Client())
		}
		denials(t, servers)

		client := closing(t, redis.NewRing(&redis.RingOptions{
			Addrs: addrs, HeartbeatFrequency: 20 * time.Millisecond,
			Username: "limiter", Password: "long-random-password", DisableIdentity: true, ReadTimeout: ample,
		}))
		store := storeOn(t, client, config{Timeout: ample, Logger: silence})
		take := func() error { _, err := gcra.Take(t.Context(), store, daily("a", 10)); return err }
		if right == "-ping" {
			redistest.Eventually(t, ample, "a Ring whose servers count as dead", func() bool { return take() != nil })
			continue
		}

		pings := func() (n int) {
			for _, s := range servers {
				n += redistest.Stat(t, s.Client(), "commandstats", "cmdstat_ping:calls=")
			}
			return n
		}
		redistest.Eventually(t, ample, "pings", func() bool { return pings() > 20 })
		if err := take(); err != nil || denials(t, servers) != 0 {
			t.Errorf("with %s: got %v; want a decision, and an empty ACL log", right, err)
		}
	}
}

// denials counts the entries of the ACL logs. The client ignores some of these errors,
// but they fill the log.
func denials(t *testing.T, servers []*redistest.Server) (n int) {
	t.Helper()
	for _, s := range servers {
		n += len(do(t, s, "acl", "log").([]any))
		do(t, s, "acl", "log", "reset")
	}
	return n
}

// limits uses all that a redisstore.Store can do.
func limits(t *testing.T, client redis.UniversalClient, subject string) error {
	t.Helper()
	store := storeOn(t, client, config{Timeout: ample, DenialTTL: -1, Logger: silence})
	var failed error
	l := middleware.Must(middleware.New(middleware.Config{Store: store, Observe: func(_ *http.Request, d *middleware.Decision) { failed = d.Err }},
		middleware.Policy{Name: "one", Key: func(*http.Request) (string, error) { return subject, nil }, Limit: gcra.PerDay(2)},
		middleware.Policy{Name: "all", Key: sitetest.Everybody, Limit: gcra.PerDay(1000)}))
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
	if err != nil {
		return err
	}

	for i, want := range []bool{true, true, false} {
		d := l.Decide(r)
		if failed != nil {
			return failed
		}
		if d.Allowed != want {
			return fmt.Errorf("decision %d: allowed is %v; want %v", i, d.Allowed, want)
		}

		if i == 0 {
			if err := d.Refund(context.Background()); err != nil {
				return err
			}
			if d = l.Decide(r); !d.Allowed || failed != nil {
				return fmt.Errorf("after a refund: allowed is %v, %w", d.Allowed, failed)
			}
		}
	}

	// Many subjects, which share scripts on a cluster too.
	var errs [200]error
	redistest.Together(len(errs), func(i int) {
		_, errs[i] = gcra.Take(t.Context(), store, daily(fmt.Sprint(subject, i), 10))
	})
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	redistest.Eventually(t, ample, "the count of servers", func() bool { return store.Stats().Instances > 0 })
	return nil
}

// logs uses all that a slidinglog.Store can do: allowing, denying, delaying, and
// refunding a part and all.
func logs(t *testing.T, client redis.UniversalClient, subject string) error {
	t.Helper()
	store, err := slidinglog.New(client, slidinglog.Config{Timeout: ample})
	if err != nil {
		return err
	}

	c := gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.PerDay(10), Cost: 3}
	for i, want := range []bool{true, true, true, false} {
		got, err := gcra.Take(t.Context(), store, c)
		if err != nil {
			return err
		}
		if got.Allowed != want {
			return fmt.Errorf("charge %d: allowed is %v; want %v", i, got.Allowed, want)
		}
	}

	for _, cost := range []int64{2, 10} {
		c.Cost = cost
		if err := store.Refund(t.Context(), []gcra.Charge{c}); err != nil {
			return err
		}
	}

	c.Subject, c.Cost, c.MaxDelay, c.MaxWait = subject+" in a queue", 10, gcra.MaxDelay, gcra.MaxDelay
	for range 2 {
		if _, err := gcra.Take(t.Context(), store, c); err != nil {
			return err
		}
	}

	return nil
}
