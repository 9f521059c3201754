package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// calls is how often a server has run a command since CONFIG RESETSTAT.
func calls(t testing.TB, client *redis.Client, command string) (n int) {
	t.Helper()
	for line := range strings.Lines(client.Info(context.Background(), "commandstats").Val()) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
			if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

func resetStats(t testing.TB, client *redis.Client) {
	t.Helper()
	if err := client.ConfigResetStat(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
}

// spentOf is how many units of an hourly bucket of n are gone, as r's Redis
// has it.
func spentOf(t testing.TB, r *redisstore.Store, subject string, n int64) int64 {
	t.Helper()
	return n - gcratest.MustTake(t, r, gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.PerHour(n)})[0].Result.Remaining
}

func hourly(subject string, n int64) gcra.Charge {
	return gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.PerHour(n), Cost: 1}
}

// After SCRIPT FLUSH, as after a restart, a call costs one more trip, and
// charges once.
func TestScriptFlush(t *testing.T) {
	client := unhurried(t, redistest.Start(t).Addr)
	r := newStore(client)
	gcratest.MustTake(t, r, hourly("s", 100))
	resetStats(t, client)
	for i := range int64(10) {
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if got, want := gcratest.MustTake(t, r, hourly("s", 100))[0].Result.Remaining, 98-i; got != want {
			t.Fatalf("call %d after SCRIPT FLUSH: got %d remaining; want %d", i, got, want)
		}
		gcratest.MustTake(t, r, hourly("other", 100))
	}
	if evalsha, eval, load := calls(t, client, "evalsha"), calls(t, client, "eval"), calls(t, client, "script|load"); evalsha+eval+load != 30 || eval+load != 10 {
		t.Errorf("20 calls and 10 flushes: got %d EVALSHA, %d EVAL, %d SCRIPT LOAD; want 30 in all, of which 10 no EVALSHA", evalsha, eval, load)
	}
}

// A script is not sent again when its reply is lost, although the client
// retries commands: the charge is made once, and the error says that it is not
// known.
func TestLostReplyChargesOnce(t *testing.T) {
	server := redistest.Start(t)
	direct := unhurried(t, server.Addr)
	proxy := redistest.NewProxy(t, server.Addr)
	client := newClient(t, &redis.Options{Addr: proxy.Addr}) // MaxRetries 3, go-redis's default
	r := newStore(client)
	sees := newStore(direct)
	sees.Prefix = r.Prefix
	gcratest.MustTake(t, r, hourly("s", 100))
	for i := range int64(3) {
		resetStats(t, direct)
		proxy.DropReply(1)
		if _, err := gcra.Take(t.Context(), r, hourly("s", 100)); err == nil {
			t.Error("got no error for a reply that was lost")
		}
		if n := calls(t, direct, "evalsha"); n != 1 {
			t.Errorf("got %d EVALSHA; want 1", n)
		}
		if got, want := spentOf(t, sees, "s", 100), 2+i; got != want {
			t.Errorf("got %d spent; want %d", got, want)
		}
		spentOf(t, r, "s", 100) // a call that succeeds: three failures in a row would be an outage
	}
	// A refund neither gives back twice.
	proxy.DropReply(1)
	if err := r.Refund(t.Context(), []gcra.Charge{hourly("s", 100)}); err == nil {
		t.Error("got no error for a refund whose reply was lost")
	}
	if got := spentOf(t, sees, "s", 100); got != 3 {
		t.Errorf("after a refund: got %d spent; want 3", got)
	}
}

// The same where scripts for several subjects travel together.
func TestLostReplyChargesOnceOnARing(t *testing.T) {
	server := redistest.Start(t)
	direct := unhurried(t, server.Addr)
	proxy := redistest.NewProxy(t, server.Addr)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": proxy.Addr}})
	t.Cleanup(func() { ring.Close() })
	r := newStore(ring)
	sees := newStore(direct)
	sees.Prefix = r.Prefix
	subjects := []string{"a", "b", "c", "d"}
	var group []gcra.Charge
	for _, s := range subjects {
		group = append(group, hourly(s, 100))
	}
	gcratest.MustTake(t, r, group...)
	for range 5 {
		before := make(map[string]int64)
		for _, s := range subjects {
			before[s] = spentOf(t, sees, s, 100)
		}
		resetStats(t, direct)
		proxy.DropReply(1)
		if _, err := r.Take(t.Context(), group); err == nil {
			t.Fatal("got no error for a reply that was lost")
		}
		proxy.Pass()
		spentOf(t, r, "a", 100) // a call that succeeds: three failures in a row would be an outage
		for _, s := range subjects {
			if got := spentOf(t, sees, s, 100) - before[s]; got > 1 || got < 0 {
				t.Errorf("subject %s: got %d charges; want at most one", s, got)
			}
		}
	}
}

// And on a cluster, whose client sends a command that failed to another node.
func TestLostReplyChargesOnceOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	proxies := make(map[string]*redistest.Proxy)
	for _, addr := range cluster.Addrs() {
		proxies[addr] = redistest.NewProxy(t, addr)
	}
	o := cluster.Options()
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, proxies[addr].Addr)
	}
	through := redis.NewClusterClient(o)
	t.Cleanup(func() { through.Close() })
	r := newStore(through)
	sees := newStore(cluster.Client())
	sees.Prefix = r.Prefix
	var group []gcra.Charge
	for i := range 12 {
		group = append(group, hourly(fmt.Sprint("subject ", i), 100))
	}
	gcratest.MustTake(t, r, group...)
	before := make([]int64, len(group))
	for i, c := range group {
		before[i] = spentOf(t, sees, c.Subject, 100)
	}
	for _, p := range proxies {
		p.DropReply(1)
	}
	if _, err := r.Take(t.Context(), group); err == nil {
		t.Error("got no error for replies that were lost")
	}
	for i, c := range group {
		if got := spentOf(t, sees, c.Subject, 100) - before[i]; got < 0 || got > 1 {
			t.Errorf("%s: got %d charges; want at most one", c.Subject, got)
		}
	}
}

// A server that takes requests and never answers costs no caller more than the
// Timeout, whatever the client's own, and the error wraps DeadlineExceeded.
// When it answers again, so does the store.
func TestBlackhole(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	opened, err := redisstore.Open("redis://" + proxy.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	for name, r := range map[string]*redisstore.Store{
		"go-redis's defaults": redisstore.New(newClient(t, &redis.Options{Addr: proxy.Addr})),
		"Open":                opened,
	} {
		t.Run(name, func(t *testing.T) {
			answers := func() {
				proxy.Pass()
				redistest.Eventually(t, patience, "the store to answer", func() bool {
					_, err := gcra.Take(t.Context(), r, hourly("s", 1000))
					return err == nil
				})
			}
			answers()
			proxy.Blackhole()
			start := time.Now()
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					for call := range 3 {
						_, err := gcra.Take(t.Context(), r, hourly(fmt.Sprint(i), 100))
						resting := call > 0 && errors.Is(err, redisstore.ErrUnavailable) // it has failed often enough by then
						if !errors.Is(err, context.DeadlineExceeded) && !resting {
							t.Errorf("call %d: got %v; want DeadlineExceeded", call, err)
						}
					}
				})
			}
			wg.Wait()
			if d := time.Since(start); d < 50*time.Millisecond || d > 4*time.Second {
				t.Errorf("3 calls in a row took %v; want little more than 150ms", d)
			}
			answers()
		})
	}
}

// A server that is not there is an error within the Timeout.
func TestNoServer(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	for name, open := range map[string]func() (*redisstore.Store, error){
		"one": func() (*redisstore.Store, error) { return redisstore.Open("redis://" + server.Addr) },
		"cluster": func() (*redisstore.Store, error) {
			return redisstore.Open("redis://" + server.Addr + "," + server.Addr)
		},
	} {
		r, err := open()
		if err != nil {
			t.Fatalf("%s: opening: %v; want no error before first use", name, err)
		}
		start := time.Now()
		if _, err := gcra.Take(t.Context(), r, hourly("s", 10)); err == nil || !strings.Contains(err.Error(), "redisstore: ") {
			t.Errorf("%s: got %v; want an error of redisstore", name, err)
		}
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("%s: took %v; want no more than 50ms by much", name, d)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
	}
}

// A caller who leaves gets his error at once, and the charge is made all the
// same: nobody dodges one by hanging up.
func TestCallerLeaves(t *testing.T) {
	server := redistest.Start(t)
	direct := newStore(unhurried(t, server.Addr))
	for name, patient := range map[string]bool{"cancels": false, "runs out of time": true} {
		t.Run(name, func(t *testing.T) {
			proxy := redistest.NewProxy(t, server.Addr)
			r := newStore(newClient(t, &redis.Options{Addr: proxy.Addr, ReadTimeout: patience}))
			direct.Prefix = r.Prefix
			gcratest.MustTake(t, r, hourly("s", 100)) // has a connection now
			proxy.Delay(10 * time.Second)
			ctx, cancel := context.WithCancel(t.Context())
			want := context.Canceled
			if patient {
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
				want = context.DeadlineExceeded
			}
			defer cancel()
			answer := make(chan error)
			go func() {
				_, err := gcra.Take(ctx, r, hourly("s", 100))
				answer <- err
			}()
			charged := func() bool { return spentOf(t, direct, "s", 100) == 2 }
			if !patient {
				redistest.Eventually(t, patience, "the charge to be made", charged)
				cancel()
			}
			start := time.Now()
			if err := <-answer; !errors.Is(err, want) {
				t.Errorf("got %v; want %v", err, want)
			}
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("the answer took %v; want it at once", d)
			}
			redistest.Eventually(t, patience, "the charge to be made", charged)
			proxy.Reset() // nobody waits for the reply
		})
	}
}

// When nobody calls, no goroutine is left, whatever has happened before.
func TestRedisLeavesNoGoroutines(t *testing.T) {
	base := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, base) })
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	r, err := redisstore.Open("redis://" + proxy.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	fault := []func(){proxy.Pass, proxy.Blackhole, proxy.Refuse, proxy.Pass}
	for _, f := range fault {
		f()
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
				defer cancel()
				_, _ = gcra.Take(ctx, r, hourly(fmt.Sprint(i), 100)) // fails or not
			})
		}
		wg.Wait()
	}
}
