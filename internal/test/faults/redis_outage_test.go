package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// probing is how long a store may take to find a Redis that is back
// (docs/failure.md: within two seconds).
const probing = 2 * time.Second

// The limiter starts without Redis, and uses it once it is there.
func TestFault01RedisStartsAfterTheApplication(t *testing.T) {
	o := apart(t, "Redis starts after the application")
	server := redistest.Start(t)
	server.Kill()
	r := rigAt(t, server.URL(), config{})
	s := underLoad(t, o, r)
	away := s.traffic(t, 200, phase(time.Second, 5*time.Second))
	away.only(t, "before Redis has started", http.StatusOK)

	if s.failed.Load() == 0 {
		t.Error("no decision was reported as degraded without a Redis")
	}
	if lines := r.log.Lines(isAway); len(lines) != 1 {
		t.Errorf("got %d log lines about the outage; want 1:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	server.Restart()
	o.recovers(t, r, probing)
	s.traffic(t, 200, phase(200*time.Millisecond, time.Second)).only(t, "after Redis has started", http.StatusOK)
	if lines := r.log.Lines(isBack); len(lines) != 1 {
		t.Errorf("got %d log lines about the recovery; want 1", len(lines))
	}
	o.inTime(t, budget)
}

// A stopped process keeps its connections open and does not answer.
func TestFault03RedisPaused(t *testing.T) {
	o := fault(t, "SIGSTOP, SIGCONT")
	server := redistest.Start(t)
	r := rigAt(t, server.URL(), config{})
	s := underLoad(t, o, r)
	works(t, r)
	s.traffic(t, 200, 300*time.Millisecond).only(t, "before the pause", http.StatusOK)
	before := held(t)
	server.Pause()
	s.traffic(t, 200, phase(1500*time.Millisecond, 30*time.Second)).only(t, "while Redis is paused", http.StatusOK)
	redistest.Eventually(t, ample, "a call that is not even tried", func() bool {
		_, err := o.take(r, plenty("somebody"))
		return errors.Is(err, redisstore.ErrUnavailable)
	})

	s.Client.CloseIdleConnections()
	before.released(t, 30) // a few batches and probes wait, not 300 requests or more
	server.Resume()
	o.recovers(t, r, probing)
	s.Client.CloseIdleConnections()
	before.released(t, 5)
	o.inTime(t, budget)
}

// A reply after the deadline is always an error, and does not cost a connection each
// time: the breaker stays open between probes.
func TestFault05SlowRedisIsLeftAlone(t *testing.T) {
	o := apart(t, "replies later than the budget")
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	r := rigAt(t, "redis://"+proxy.Addr, config{Timeout: 50 * time.Millisecond})
	works(t, r)
	proxy.Delay(300 * time.Millisecond)
	opened := proxy.Connections()
	d := phase(1500*time.Millisecond, 10*time.Second)

	end := time.Now().Add(d)
	redistest.Together(8, func(i int) {
		for ; time.Now().Before(end); time.Sleep(time.Millisecond) {
			if _, err := o.take(r, plenty(fmt.Sprint(i))); err == nil {
				t.Error("an answer came before its deadline; want an error")
			}
		}
	})

	// A few failures, then a probe each 500 ms at most, each on a connection that is
	// dropped; the client keeps two spare ones.
	if got, most := proxy.Connections()-opened, 10+3*int64(d/(500*time.Millisecond)); got > most {
		t.Errorf("%d connections opened for %d calls; want at most %d", got, o.requests.Load(), most)
	}
	proxy.Pass()
	o.recovers(t, r, probing)
	o.inTime(t, r.Timeout)
}

// A server that stands still by itself and recovers without a restart.
func TestFault06RedisStandsStill(t *testing.T) {
	o := apart(t, "DEBUG SLEEP, CLIENT PAUSE WRITE")
	server := redistest.Start(t)
	for _, args := range [][]any{{"debug", "sleep", "1"}, {"client", "pause", "1000", "write"}} {
		r := rigAt(t, server.URL(), config{})
		works(t, r)

		done := make(chan error)
		go func() { done <- server.Client().Do(context.Background(), args...).Err() }()
		redistest.Eventually(t, ample, fmt.Sprint(args, " to make calls fail"), func() bool { return !answers(r) })

		for range 50 {
			_, _ = o.take(r, plenty("somebody")) // only its duration matters
		}
		if err := <-done; err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		o.recovers(t, r, time.Second+probing)
		o.inTime(t, budget)
	}
}

// Many callers share few connections: a batch needs one, however many callers it
// has, so that a small pool is enough. When replies stop, no caller waits for a
// connection beyond its Timeout.
func TestFault09SmallPoolServesManyCallers(t *testing.T) {
	o := apart(t, "2 connections, slow replies, 200 callers")
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	r := rigAt(t, "redis://"+proxy.Addr+"?pool_size=2&pool_timeout=10s", config{Timeout: ample})
	works(t, r)
	proxy.Delay(50 * time.Millisecond)

	redistest.Together(200, func(i int) {
		if _, err := o.take(r, plenty(fmt.Sprint(i))); err != nil {
			t.Errorf("200 callers on 2 connections: %v", err)
		}
	})

	if n := proxy.Connections(); n > 2 {
		t.Errorf("%d connections; want 2", n)
	}

	slow := rigAt(t, "redis://"+proxy.Addr+"?pool_size=2&pool_timeout=10s", config{})
	works(t, slow)
	proxy.Delay(10 * time.Second)
	sent := proxy.RequestBytes()

	var late outcome
	redistest.Together(200, func(i int) {
		if _, err := late.take(slow, plenty(fmt.Sprint(i))); err == nil {
			t.Error("a call was answered by a server that is slower than the Timeout")
		}
	})

	late.inTime(t, budget)
	// 200 calls of some 100 bytes each, sent once.
	if n := proxy.RequestBytes() - sent; n > 60_000 {
		t.Errorf("%d bytes sent for 200 calls; want each call sent once at most", n)
	}
}
