package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/inflight"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// jobs run on three servers with clients of their own while f runs, and as many as most at once. It returns the most that ran
// at once, and how many ran after f.
func jobs(t *testing.T, client func() redis.UniversalClient, key string, most int, f func()) (peak, after int64) {
	t.Helper()
	var running, highest, served atomic.Int64
	var over atomic.Bool
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		c := client()
		l, err := inflight.New(c, inflight.Config{Timeout: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), ample)
			defer cancel()
			if err := l.Close(ctx); err != nil {
				t.Error(err)
			}
			_ = c.Close()
		})
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					time.Sleep(rand.N(5 * time.Millisecond))
					slot, err := l.Acquire(ctx, key, most)
					if err != nil {
						continue
					}
					for n := running.Add(1); ; {
						if old := highest.Load(); n <= old || highest.CompareAndSwap(old, n) {
							break
						}
					}
					if over.Load() {
						served.Add(1)
					}
					time.Sleep(rand.N(10 * time.Millisecond))
					running.Add(-1)
					slot.Release()
				}
			})
		}
	}

	f()
	over.Store(true)
	redistest.Eventually(t, 2*ample, "jobs to run again", func() bool { return served.Load() > 100 })
	stop()
	wg.Wait()
	return highest.Load(), served.Load()
}

func TestSlotsWhileTheirSlotMoves(t *testing.T) {
	beside(t)
	c := theCluster(t)
	const most = 4
	key := subjectOn(t, c, 0, "job")
	from, to := shards(t, c)[0].master, shards(t, c)[1].master
	client := func() redis.UniversalClient {
		o := c.Options()
		o.ContextTimeoutEnabled = true
		return redis.NewClusterClient(o)
	}
	peak, _ := jobs(t, client, key, most, func() {
		for range 3 {
			time.Sleep(100 * time.Millisecond)
			keys, done := move(t, c, slotOf(t, c, key), from, to)
			time.Sleep(20 * time.Millisecond)
			keys("if:{" + key + "}:slots")
			time.Sleep(20 * time.Millisecond)
			done()
			from, to = to, from
		}
	})
	if peak > most {
		t.Errorf("%d ran at once; want at most %d", peak, most)
	}
}

func TestSlotsAtFailover(t *testing.T) {
	beside(t)
	group := theSentinels(t)
	const most = 4
	client := func() redis.UniversalClient {
		o := group.Options()
		o.ContextTimeoutEnabled, o.MaxRetries, o.DialTimeout = true, -1, 500*time.Millisecond
		return redis.NewFailoverClient(o)
	}
	peak, _ := jobs(t, client, "job", most, func() {
		time.Sleep(200 * time.Millisecond)
		old := group.Master()
		old.Kill()
		group.Successor(old)
	})
	if peak > 2*most {
		t.Errorf("%d ran at once; want at most %d: the new master may lack the last writes", peak, 2*most)
	}
}

// TestACLInFlight runs a limiter as a Redis user with the rights that SECURITY.md lists, and again without each of the
// commands.
func TestACLInFlight(t *testing.T) {
	t.Parallel()
	const user = "limiter-inflight"
	rules := aclLines(t)[user]
	server := redistest.Start(t)
	works := func(rules []string) bool {
		args := []any{"acl", "setuser", user, "reset"}
		for _, rule := range rules {
			args = append(args, strings.ReplaceAll(rule, "PASSWORD", "long-random-password"))
		}
		do(t, server, args...)
		do(t, server, "script", "flush")
		do(t, server, "acl", "log", "reset")

		url := fmt.Sprintf("redis://%s:long-random-password@%s/0", user, server.Addr)
		l, err := inflight.Open(url, inflight.Config{Timeout: ample, Logger: silence})
		if err != nil {
			t.Fatal(err)
		}
		// A field that has ended and one of a clock that is ahead are walked.
		do(t, server, "hset", "if:{a}:slots", "0123456789abcdef", "1 1 1 1000", "fedcba9876543210", "1 1 9000000000000 1000")
		for range 2 {
			slot, err := l.Acquire(t.Context(), "a", 3)
			if err != nil {
				break
			}
			slot.Release()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_ = l.Close(ctx)
		entries, _ := do(t, server, "acl", "log").([]any)
		do(t, server, "del", "if:{a}:slots")
		return len(entries) == 0
	}

	if len(rules) == 0 || !works(rules) {
		t.Fatalf("as %s with %q: there are entries in the ACL log", user, rules)
	}
	for i, rule := range rules {
		if strings.HasPrefix(rule, "+") && works(append(append([]string{}, rules[:i]...), rules[i+1:]...)) {
			t.Errorf("without %s nothing failed; want only necessary words in the line", rule)
		}
	}
}
