package faults

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// fleet are servers that share limits and decide by themselves in an outage.
type fleet struct {
	rigs     []*rig
	limiters []*middleware.Limiter
}

func newFleet(t testing.TB, n int, limit gcra.Limit, url func(int) string) fleet {
	t.Helper()
	var f fleet
	for i := range n {
		r := rigAt(t, url(i), config{Prefix: "fleet:"})
		f.rigs = append(f.rigs, r)
		f.limiters = append(f.limiters, middleware.Must(middleware.New(
			middleware.Config{Store: r.Store, Instances: n},
			middleware.Policy{Name: "p", Limit: limit, Key: func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }})))
	}
	return f
}

// ask sends requests of one user to all servers for a while, with a pause after
// each, and counts the allowed and the degraded ones.
func (f fleet) ask(o *outcome, user string, d, pause time.Duration) (allowed, degraded int64) {
	var passed, alone atomic.Int64
	end := time.Now().Add(d)
	redistest.Together(len(f.limiters), func(i int) {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("User", user)

		for time.Now().Before(end) {
			start := time.Now()
			dec := f.limiters[i].Decide(req)
			o.decided(time.Since(start))

			if dec.Allowed {
				passed.Add(1)
			}
			if dec.Err != nil {
				alone.Add(1)
			}
			time.Sleep(pause)
		}
	})

	return passed.Load(), alone.Load()
}

// Without Redis each of N servers has an Nth of the limit, and starts from the
// state that it last got from Redis.
func TestFault88OutageDoesNotMultiplyTheQuota(t *testing.T) {
	o := apart(t, "Redis killed, four servers")
	const n, rate, burst = 4, 40, 40
	limit := gcra.PerSecond(rate).WithBurst(burst)
	for name, warm := range map[string]bool{"cold": false, "warm": true} {
		server := redistest.Start(t)
		f := newFleet(t, n, limit, func(int) string { return server.URL() })
		for _, r := range f.rigs {
			works(t, r)
		}
		start := time.Now()
		var allowed int64
		if warm {
			allowed, _ = f.ask(o, "user", 300*time.Millisecond, time.Millisecond)
		}
		server.Kill()
		during, degraded := f.ask(o, "user", phase(2*time.Second, 60*time.Second), time.Millisecond)
		allowed += during
		took := time.Since(start).Seconds()

		// One burst, spent before or after: the servers start from their last state,
		// which may be as old as their last call.
		bound := int64(burst + burst/2 + math.Ceil(rate*took*1.05))
		o.atMost(t, allowed, bound, name+", 4 servers without Redis")
		if degraded == 0 || during < int64(rate*phase(2*time.Second, 60*time.Second).Seconds()/2) {
			t.Errorf("%s: %d allowed in the outage, %d decisions degraded; want the rate", name, during, degraded)
		}
		o.injected += fmt.Sprintf("; %s: %d of %d allowed", name, allowed, bound)
	}

	o.inTime(t, budget)
}

// When Redis is back, servers reconnect one connection at a time.
func TestFault57RecoveryOpensFewConnections(t *testing.T) {
	o := apart(t, "Redis silent, then back; four servers")
	const n = 4
	server := redistest.Start(t)
	var proxies [n]*redistest.Proxy
	for i := range proxies {
		proxies[i] = redistest.NewProxy(t, server.Addr)
	}
	f := newFleet(t, n, gcra.PerSecond(100_000), func(i int) string { return "redis://" + proxies[i].Addr })
	for _, r := range f.rigs {
		works(t, r)
	}

	load := func(d time.Duration) {
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() { f.ask(o, "user", d, time.Millisecond) })
		}
		wg.Wait()
	}

	load(200 * time.Millisecond)
	count := func() (all int64) {
		for _, p := range proxies {
			all += p.Connections()
		}
		return all
	}

	for _, p := range proxies {
		p.Blackhole()
	}
	load(500 * time.Millisecond) // the first failures, and the pools' reaction
	d := phase(1500*time.Millisecond, 10*time.Second)
	before := count()
	load(d)

	// A probe each 500 ms at most for each server, and two spare connections.
	perSecond := float64(count()-before) / d.Seconds()
	if perSecond > 8*n {
		t.Errorf("%.0f connections a second while Redis is silent; want at most %d", perSecond, 8*n)
	}

	before = count()
	for _, p := range proxies {
		p.Pass()
	}
	stop := during(func() { load(100 * time.Millisecond) })
	for _, r := range f.rigs {
		o.recoversWhen(t, probing, func() bool { return len(r.log.Lines(isBack)) > 0 })
	}
	stop()

	if opened := count() - before; opened > 16*n {
		t.Errorf("%d connections opened by %d servers at the recovery; want at most %d", opened, n, 16*n)
	} else {
		o.injected += fmt.Sprintf(": %.1f connections a second, %d at the recovery", perSecond, opened)
	}

	o.inTime(t, budget)
}

// A Redis that comes and goes: each change may allow one more burst, and the breaker
// changes its state no more often than its pause allows.
func TestFault58RedisFlaps(t *testing.T) {
	o := apart(t, "Redis up and down")
	const rate, burst = 50, 25
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	f := newFleet(t, 1, gcra.PerSecond(rate).WithBurst(burst), func(int) string { return "redis://" + proxy.Addr })
	works(t, f.rigs[0])
	flaps := amount(3, 30)
	up, down := phase(700*time.Millisecond, time.Second), phase(700*time.Millisecond, time.Second)
	start := time.Now()
	var allowed, degraded int64

	add := func(passed, alone int64) { allowed, degraded = allowed+passed, degraded+alone }
	for range flaps {
		add(f.ask(o, "user", up, time.Millisecond))
		proxy.Refuse()
		add(f.ask(o, "user", down, time.Millisecond))
		proxy.Pass()
	}

	took := time.Since(start)
	bound := burst + int64(math.Ceil(rate*took.Seconds())) + burst*int64(flaps)
	o.atMost(t, allowed, bound, fmt.Sprint(flaps, " flaps"))
	o.injected += fmt.Sprintf(" %d times: %d of %d allowed", flaps, allowed, bound)

	if degraded == 0 || allowed < int64(rate*took.Seconds()/2) {
		t.Errorf("%d allowed, %d decisions degraded; want the rate, and some degraded decisions", allowed, degraded)
	}

	// The breaker stays open for 500 ms at least, and the log has a line for each change.
	if changes, most := len(f.rigs[0].log.Lines("redis is")), 2*int(took/(500*time.Millisecond)); changes > most {
		t.Errorf("%d changes of state in %v; want at most %d", changes, took, most)
	}
	proxy.Pass()
	o.recovers(t, f.rigs[0], probing)
	o.inTime(t, budget)
}
