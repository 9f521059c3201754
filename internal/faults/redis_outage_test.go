package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// probing is how long a store may take to find a Redis that is back: its rest
// and a second (docs/failure.md: within two seconds).
const probing = 2 * time.Second

// The limiter does not need Redis in order to start, and finds it when it comes.
var _ = fault(1, "redis_not_there_at_start", func(t *testing.T, o *outcome) {
	o.injected = "Redis starts after the application"
	server := redistest.Start(t)
	server.Kill()
	r := rigAt(t, server.URL())
	s := newSite(t, o, r, ratelimit.Config{}, ratelimit.Policy{Name: "all", Limit: gcra.PerSecond(1000)})
	away := s.traffic(t, 200, phase(time.Second, 5*time.Second))
	away.only(t, "before Redis has started", http.StatusOK)
	if s.degraded.Load() == 0 {
		t.Error("no decision was reported as degraded without a Redis")
	}
	if lines := r.log.lines(isAway); len(lines) != 1 {
		t.Errorf("got %d log lines about the outage; want 1:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	server.Restart()
	o.recovers(t, r, probing)
	s.traffic(t, 200, phase(200*time.Millisecond, time.Second)).only(t, "after Redis has started", http.StatusOK)
	if lines := r.log.lines(isBack); len(lines) != 1 {
		t.Errorf("got %d log lines about the recovery; want 1", len(lines))
	}
	o.inTime(t, budget)
})

var _ = fault(2, "kill_under_load", func(t *testing.T, o *outcome) {
	o.injected = "kill -9, restart"
	server := redistest.Start(t)
	r := rigAt(t, server.URL())
	s := newSite(t, o, r, ratelimit.Config{}, ratelimit.Policy{Name: "all", Limit: gcra.PerSecond(1000)})
	works(t, r)
	rate := 200
	if long {
		rate = 500
	}
	s.traffic(t, rate, phase(300*time.Millisecond, 2*time.Second)).only(t, "before the kill", http.StatusOK)
	before := s.degraded.Load()
	server.Kill()
	s.traffic(t, rate, phase(1500*time.Millisecond, 10*time.Second)).only(t, "while Redis is gone", http.StatusOK)
	if s.degraded.Load() == before {
		t.Error("no decision was reported as degraded while Redis was gone")
	}
	server.Restart()
	o.recovers(t, r, probing)
	s.traffic(t, rate, phase(300*time.Millisecond, 2*time.Second)).only(t, "after the restart", http.StatusOK)
	o.inTime(t, budget)
})

// A process that is stopped keeps its connections open and answers nothing.
var _ = fault(3, "paused_server", func(t *testing.T, o *outcome) {
	o.injected = "SIGSTOP, SIGCONT"
	server := redistest.Start(t)
	r := rigAt(t, server.URL())
	s := newSite(t, o, r, ratelimit.Config{}, ratelimit.Policy{Name: "all", Limit: gcra.PerSecond(1000)})
	works(t, r)
	s.traffic(t, 200, 300*time.Millisecond).only(t, "before the pause", http.StatusOK)
	before := held(t)
	server.Pause()
	s.traffic(t, 200, phase(1500*time.Millisecond, 30*time.Second)).only(t, "while Redis is paused", http.StatusOK)
	redistest.Eventually(t, ample, "a call that is not even tried", func() bool {
		_, err := o.take(r, plenty("somebody"))
		return errors.Is(err, redisstore.ErrUnavailable)
	})
	s.client.CloseIdleConnections()
	before.released(t, 30) // what waits is a few batches and probes, not 300 requests or more
	server.Resume()
	o.recovers(t, r, probing)
	s.client.CloseIdleConnections()
	before.released(t, 5)
	o.inTime(t, budget)
})

// Replies that come after the deadline are no replies, always, and connections
// are not churned for each of them: the server is left alone between probes.
var _ = fault(5, "slow_redis", func(t *testing.T, o *outcome) {
	o.injected = "replies later than the budget"
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	r := rigAt(t, "redis://"+proxy.Addr)
	r.Timeout = 50 * time.Millisecond
	works(t, r)
	proxy.Delay(300 * time.Millisecond)
	opened := proxy.Connections()
	d := phase(1500*time.Millisecond, 10*time.Second)
	end := time.Now().Add(d)
	crowd(8, func(i int) {
		for ; time.Now().Before(end); time.Sleep(time.Millisecond) {
			if _, err := o.take(r, plenty(fmt.Sprint(i))); err == nil {
				t.Error("an answer came before its deadline; want an error")
			}
		}
	})
	// A few failures, then a probe each 500 ms at most, each on a connection that
	// is dropped, with the client keeping two spare ones.
	if got, most := proxy.Connections()-opened, 10+3*int64(d/(500*time.Millisecond)); got > most {
		t.Errorf("%d connections opened for %d calls; want at most %d", got, o.requests.Load(), most)
	}
	proxy.Pass()
	o.recovers(t, r, probing)
	o.inTime(t, r.Timeout)
})

// Servers that stand still by themselves do so without being restarted.
var _ = fault(6, "server_stands_still", func(t *testing.T, o *outcome) {
	o.injected = "DEBUG SLEEP, CLIENT PAUSE WRITE"
	server := redistest.Start(t)
	for _, args := range [][]any{{"debug", "sleep", "1"}, {"client", "pause", "1000", "write"}} {
		r := rigAt(t, server.URL())
		works(t, r)
		done := make(chan error)
		go func() { done <- server.Client().Do(context.Background(), args...).Err() }()
		redistest.Eventually(t, ample, fmt.Sprint(args, " to make calls fail"), func() bool { return !answers(r) })
		for range 50 {
			_, _ = o.take(r, plenty("somebody")) // its time is what counts
		}
		if err := <-done; err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		o.recovers(t, r, time.Second+probing)
		o.inTime(t, budget)
	}
})

// A host that is gone does not even refuse. The first calls find no connection
// and must not wait for one.
var _ = fault(8, "host_gone", func(t *testing.T, o *outcome) {
	o.injected = "no SYN is answered"
	addr := blackholed(t)
	for name, client := range map[string]*redis.Client{
		"go-redis's defaults": closing(t, redis.NewClient(&redis.Options{Addr: addr})),
		"long ample":          closing(t, redis.NewClient(&redis.Options{Addr: addr, DialTimeout: ample, PoolTimeout: ample})),
	} {
		r := rigOn(client)
		crowd(20, func(i int) {
			if _, err := o.take(r, plenty(fmt.Sprint(i))); err == nil {
				t.Errorf("%s: a call to a host that is gone was answered", name)
			}
		})
	}
	o.inTime(t, budget)
})

// Many callers share few connections: a batch takes one whatever the number of
// its callers, so that a small pool is enough, and when replies stop nobody
// waits for a connection beyond the budget.
var _ = fault(9, "small_pool", func(t *testing.T, o *outcome) {
	o.injected = "2 connections, slow replies, 200 callers"
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	r := rigAt(t, "redis://"+proxy.Addr+"?pool_size=2&pool_timeout=10s")
	r.Timeout = ample
	works(t, r)
	proxy.Delay(50 * time.Millisecond)
	crowd(200, func(i int) {
		if _, err := o.take(r, plenty(fmt.Sprint(i))); err != nil {
			t.Errorf("200 callers on 2 connections: %v", err)
		}
	})
	if n := proxy.Connections(); n > 2 {
		t.Errorf("%d connections; want 2", n)
	}

	slow := rigAt(t, "redis://"+proxy.Addr+"?pool_size=2&pool_timeout=10s")
	works(t, slow)
	proxy.Delay(10 * time.Second)
	sent := proxy.RequestBytes()
	var late outcome
	crowd(200, func(i int) {
		if _, err := late.take(slow, plenty(fmt.Sprint(i))); err == nil {
			t.Error("a call was answered by a server that is slower than the budget")
		}
	})
	late.inTime(t, budget)
	// 200 calls of some 100 bytes each, sent once.
	if n := proxy.RequestBytes() - sent; n > 60_000 {
		t.Errorf("%d bytes sent for 200 calls; want each call sent once at most", n)
	}
})

// Waiting for a connection, dialling and reading come out of one budget,
// whatever each of them may take by the client's own settings.
var _ = fault(10, "one_budget_for_all_waits", func(t *testing.T, o *outcome) {
	o.injected = "dial, wait and read all stand still"
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	options := &redis.Options{Addr: proxy.Addr, PoolSize: 1, DialTimeout: ample, PoolTimeout: ample, ReadTimeout: 2 * time.Second, WriteTimeout: ample}
	for name, fault := range map[string]func(){
		"accepts and is silent": proxy.Blackhole,
		"slow to greet":         func() { proxy.Delay(150 * time.Millisecond) },
	} {
		client := closing(t, redis.NewClient(options))
		r := rigOn(client)
		fault()
		crowd(30, func(i int) {
			if _, err := o.take(r, plenty(fmt.Sprint(i))); err == nil {
				t.Errorf("%s: a call was answered; the greeting alone takes longer than the budget", name)
			}
		})
		proxy.Pass()
	}
	o.inTime(t, budget)
})

// go-redis does not interrupt a read by itself.
var _ = fault(11, "deadline_in_a_read", func(t *testing.T, o *outcome) {
	o.injected = "a reply that never comes, with the caller's own deadline"
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	for name, r := range map[string]*rig{
		"Open":     rigAt(t, "redis://"+proxy.Addr),
		"defaults": rigOn(closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr}))),
	} {
		r.Timeout = ample
		proxy.Pass()
		works(t, r)
		proxy.Blackhole()
		for _, end := range []func(context.Context) (context.Context, context.CancelFunc){
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 25*time.Millisecond)
			},
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(25*time.Millisecond, cancel)
				return ctx, cancel
			},
		} {
			ctx, cancel := end(t.Context())
			start := time.Now()
			_, err := gcra.Take(ctx, r, plenty("somebody"))
			o.decided(time.Since(start))
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: got %v; want the context's error", name, err)
			}
		}
	}
	o.inTime(t, 25*time.Millisecond)
	proxy.Reset()
})

// Whoever looks sees that the limiter is degraded: each decision carries the
// reason, the log has a line for each change of state and none in between.
var _ = fault(89, "degradation_is_told", func(t *testing.T, o *outcome) {
	o.injected = "kill -9 twice"
	server := redistest.Start(t)
	r := rigAt(t, server.URL())
	s := newSite(t, o, r, ratelimit.Config{}, ratelimit.Policy{Name: "all", Limit: gcra.PerSecond(1000)})
	for round := 1; round <= 2; round++ {
		works(t, r)
		redistest.Eventually(t, ample, "the recovery to be logged", func() bool { return len(r.log.lines(isBack)) == round-1 })
		server.Kill()
		before, asked := s.degraded.Load(), o.requests.Load()
		s.traffic(t, 200, phase(time.Second, 10*time.Second))
		if degraded, all := s.degraded.Load()-before, o.requests.Load()-asked; degraded != all {
			t.Errorf("round %d: Observe was told of %d degraded decisions; want all %d", round, degraded, all)
		}
		if n := len(r.log.lines(isAway)); n != round {
			t.Errorf("round %d: got %d log lines about outages; want %d", round, n, round)
		}
		server.Restart()
	}
	o.recovers(t, r, probing)
})

// A limiter that cannot tell does not claim that the client has asked too much.
var _ = fault(90, "an_outage_is_no_429", func(t *testing.T, o *outcome) {
	o.injected = "kill -9, policy closed"
	server := redistest.Start(t)
	r := rigAt(t, server.URL())
	r.Timeout = ample
	s := newSite(t, o, r, ratelimit.Config{}, ratelimit.Policy{Name: "all", Limit: gcra.PerDay(5), OnFailure: ratelimit.FailClosed})
	for i := range 6 {
		want := http.StatusOK
		if i == 5 {
			want = http.StatusTooManyRequests
		}
		if got := s.get(t, "honest"); got.StatusCode != want {
			t.Errorf("request %d: got %d; want %d", i, got.StatusCode, want)
		}
	}
	server.Kill()
	redistest.Eventually(t, ample, "the server to say that it cannot tell", func() bool {
		return s.get(t, "other").StatusCode == http.StatusServiceUnavailable
	})
	var refused atomic.Int64
	crowd(20, func(i int) {
		resp := s.get(t, fmt.Sprint("user", i))
		if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "" {
			refused.Add(1)
		} else {
			t.Errorf("without Redis: got %d, Retry-After %q; want 503 and a time", resp.StatusCode, resp.Header.Get("Retry-After"))
		}
	})
	server.Restart()
	o.recovers(t, r, probing)
	if got := s.get(t, "other").StatusCode; got != http.StatusOK {
		t.Errorf("with Redis back: got %d; want 200", got)
	}
})
