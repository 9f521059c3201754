package faults

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// latencies are of decisions, to be sorted.
type latencies []time.Duration

func (l latencies) p99() time.Duration {
	slices.Sort(l)
	return l[len(l)*99/100]
}

// hot asks for one key from two processes' stores for a while.
func hot(o *outcome, stores [2]*rig, c gcra.Charge, d time.Duration) (all latencies, admitted, failed int64) {
	var mu sync.Mutex
	end := time.Now().Add(d)
	crowd(8, func(i int) {
		var mine latencies
		var passed, errs int64
		for time.Now().Before(end) {
			start := time.Now()
			res, err := o.take(stores[i%2], c)
			mine = append(mine, time.Since(start))
			if err != nil {
				errs++
			} else if res.Allowed {
				passed++
			}
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, mine...)
		admitted += passed
		failed += errs
	})
	return all, admitted, failed
}

// A key that everybody asks for costs Redis little more than its admissions:
// refusals are known without a trip, and are right.
var _ = fault(49, "hot_key", func(t *testing.T, o *outcome) {
	server := redistest.Start(t)
	d := phase(time.Second, 10*time.Second)
	c := gcra.Charge{Subject: "hot", Policy: "p", Limit: gcra.PerSecond(20), Cost: 1}
	bound := func(took time.Duration) int64 { return 20 + int64(math.Ceil(20*took.Seconds())) }
	var trips [2]int64
	for i, without := range []bool{false, true} {
		var stores [2]*rig
		for j := range stores {
			stores[j] = rigAt(t, server.URL()+"?read_timeout=20s")
			stores[j].Prefix, stores[j].Timeout, stores[j].NoDenialCache = fmt.Sprint("hot", i, ":"), ample, without
			works(t, stores[j])
		}
		resetStats(t, server)
		start := time.Now()
		all, admitted, failed := hot(o, stores, c, d)
		o.atMost(t, admitted, bound(time.Since(start)), "one hot key")
		if least := int64(20 * d.Seconds()); failed > 0 || admitted < least {
			t.Errorf("without the denial cache %v: %d admitted, %d failed; want at least %d and none", without, admitted, failed, least)
		}
		trips[i] = calls(t, server, "evalsha")
		if i == 0 {
			// At most an admission, or a look, whenever the rate allows one.
			if denied := int64(len(all)) - admitted; trips[i] > admitted+denied/20 {
				t.Errorf("%d trips for %d admissions and %d refusals; want 95%% of the refusals without one", trips[i], admitted, denied)
			}
			o.injected = fmt.Sprintf("one key from two processes: %.0f a second, p99 %v, %d trips", float64(len(all))/d.Seconds(), all.p99().Round(time.Microsecond), trips[i])
		}
	}
	o.injected += fmt.Sprintf("; %d without the denial cache", trips[1])
})

// Whoever comes first finds a full bucket, and nobody finds it twice.
var _ = fault(50, "concurrent_first_use", func(t *testing.T, o *outcome) {
	o.injected = "64 callers in each of 4 processes, at once"
	server := redistest.Start(t)
	url := server.URL() + "?read_timeout=20s"
	var children [4]*process
	for i := range children {
		children[i] = startProcess(t, url)
	}
	const burst = 50
	for round := range amount(5, 50) {
		var passed int64
		for _, n := range askAll(t, children[:], fmt.Sprintf("burst round%d %d", round, burst)) {
			passed += n[0]
			o.requests.Add(n[1])
		}
		o.atMost(t, passed, burst, "first use")
		if passed < burst {
			t.Errorf("round %d: %d admitted; want %d", round, passed, burst)
		}
	}
})

// Every admission of several processes is seen on the server, and their history
// is one that a single limiter could have made.
var _ = fault(51, "concurrent_processes", func(t *testing.T, o *outcome) {
	o.injected = "4 processes on 100 keys, replayed"
	server := redistest.Start(t)
	url := server.URL() + "?read_timeout=20s"
	var children [4]*process
	for i := range children {
		children[i] = startProcess(t, url)
	}
	d := phase(1500*time.Millisecond, 60*time.Second)
	var admitted int64
	lines := monitored(t, server, func() {
		for _, n := range askAll(t, children[:], fmt.Sprint("load ", d.Milliseconds(), " 100")) {
			admitted += n[0]
			o.requests.Add(n[1])
		}
	})
	if units := replay(t, o, lines, loadLimit); units != admitted {
		t.Errorf("the processes saw %d admissions, the server %d", admitted, units)
	}
	if admitted < 100*loadLimit.Burst {
		t.Errorf("%d admissions; want each of 100 buckets used up", admitted)
	}
})

// loadLimit is what the processes of a load keep: T is 50 ms.
var loadLimit = gcra.PerSecond(20).WithBurst(5)

// replay goes through the writes of a server. Each must move its TAT on by
// whole units from where it stood, or from the moment of the call, and never
// further ahead than a burst: then no interval has more admissions than a burst
// and what its length gives.
func replay(t testing.TB, o *outcome, lines []string, l gcra.Limit) (units int64) {
	t.Helper()
	interval := ticks(l.Per) / l.Count
	burst := l.Burst * interval
	tats := make(map[string]int64)
	for _, line := range lines {
		_, cmd, _ := strings.Cut(line, "] ")
		arg := strings.Split(strings.Trim(cmd, `"`), `" "`)
		if !strings.EqualFold(arg[0], "set") {
			continue
		}
		tat, err1 := strconv.ParseInt(arg[2], 10, 64)
		ttl, err2 := strconv.ParseInt(arg[4], 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("MONITOR has %q", line)
		}
		// The TTL is what TAT is ahead, rounded up to a millisecond.
		now := tat - ttl*ticks(time.Millisecond)
		old := tats[arg[1]]
		if old > now+ticks(time.Millisecond) {
			n := (tat - old) / interval
			if n < 1 || (tat-old)%interval != 0 {
				t.Errorf("%s: TAT moves by %d; want whole units of %d", arg[1], tat-old, interval)
			}
			units += n
		} else { // from now, which is known to the millisecond
			units += (tat - now + interval/2) / interval
		}
		if ahead := tat - now - ticks(time.Millisecond); ahead > burst {
			over := (ahead-burst)/interval + 1
			o.over.Add(over)
			t.Errorf("%s: TAT stands %d ahead; want at most %d", arg[1], ahead, burst)
		}
		if tat < old {
			t.Errorf("%s: TAT goes back from %d to %d", arg[1], old, tat)
		}
		tats[arg[1]] = tat
	}
	return units
}

// fleet are servers that share limits and decide by themselves in an outage.
type fleet struct {
	rigs     []*rig
	limiters []*middleware.Limiter
}

func newFleet(t testing.TB, n int, limit gcra.Limit, url func(int) string) fleet {
	t.Helper()
	var f fleet
	for i := range n {
		r := rigAt(t, url(i))
		r.Prefix = "fleet:"
		f.rigs = append(f.rigs, r)
		f.limiters = append(f.limiters, middleware.Must(middleware.New(
			middleware.Config{Store: r.Store, Instances: n},
			middleware.Policy{Name: "p", Limit: limit, Key: func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }})))
	}
	return f
}

// ask sends requests of one user to all servers for a while, as fast as pause
// lets it, and counts those that are allowed.
func (f fleet) ask(o *outcome, user string, d, pause time.Duration) (admitted, degraded int64) {
	var passed, alone atomic.Int64
	end := time.Now().Add(d)
	crowd(len(f.limiters), func(i int) {
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

// Without Redis each of N servers keeps an Nth of the limit, beginning where
// Redis has left it as far as it knows.
var _ = fault(88, "outage_does_not_multiply_the_quota", func(t *testing.T, o *outcome) {
	const n, rate, burst = 4, 40, 40
	limit := gcra.PerSecond(rate).WithBurst(burst)
	for name, warm := range map[string]bool{"cold": false, "warm": true} {
		server := redistest.Start(t)
		f := newFleet(t, n, limit, func(int) string { return server.URL() })
		for _, r := range f.rigs {
			works(t, r)
		}
		start := time.Now()
		var admitted int64
		if warm {
			admitted, _ = f.ask(o, "user", 300*time.Millisecond, time.Millisecond)
		}
		server.Kill()
		during, degraded := f.ask(o, "user", phase(2*time.Second, 60*time.Second), time.Millisecond)
		admitted += during
		took := time.Since(start).Seconds()
		// One burst, spent before or after: the servers go on from what they know.
		// What each knows may be as old as its last call, which is a fraction.
		bound := int64(burst + burst/2 + math.Ceil(rate*took*1.05))
		o.atMost(t, admitted, bound, name+", 4 servers without Redis")
		if degraded == 0 || during < int64(rate*phase(2*time.Second, 60*time.Second).Seconds()/2) {
			t.Errorf("%s: %d admitted in the outage, %d decisions degraded; want service to go on at the rate", name, during, degraded)
		}
		o.injected += fmt.Sprintf("Redis killed, %s: %d of %d; ", name, admitted, bound)
	}
	o.inTime(t, budget)
})

// When Redis comes back, servers come back to it one connection at a time.
var _ = fault(57, "recovery_herd", func(t *testing.T, o *outcome) {
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
		o.recoversWhen(t, probing, func() bool { return len(r.log.lines(isBack)) > 0 })
	}
	stop()
	if opened := count() - before; opened > 16*n {
		t.Errorf("%d connections opened by %d servers at the recovery; want at most %d", opened, n, 16*n)
	} else {
		o.injected = fmt.Sprintf("silence, then recovery, 4 servers: %.1f connections a second, %d at the recovery", perSecond, opened)
	}
	o.inTime(t, budget)
})

// A Redis that comes and goes: each change may give what was lost once more,
// and the breaker changes its mind no more often than it rests.
var _ = fault(58, "flapping", func(t *testing.T, o *outcome) {
	const rate, burst = 50, 25
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	f := newFleet(t, 1, gcra.PerSecond(rate).WithBurst(burst), func(int) string { return "redis://" + proxy.Addr })
	works(t, f.rigs[0])
	flaps := amount(3, 30)
	up, down := phase(700*time.Millisecond, time.Second), phase(700*time.Millisecond, time.Second)
	start := time.Now()
	var admitted, degraded int64
	add := func(passed, alone int64) { admitted, degraded = admitted+passed, degraded+alone }
	for range flaps {
		add(f.ask(o, "user", up, time.Millisecond))
		proxy.Refuse()
		add(f.ask(o, "user", down, time.Millisecond))
		proxy.Pass()
	}
	took := time.Since(start)
	bound := burst + int64(math.Ceil(rate*took.Seconds())) + burst*int64(flaps)
	o.atMost(t, admitted, bound, fmt.Sprint(flaps, " flaps"))
	o.injected = fmt.Sprintf("up and down %d times: %d of %d admitted", flaps, admitted, bound)
	if degraded == 0 || admitted < int64(rate*took.Seconds()/2) {
		t.Errorf("%d admitted, %d decisions degraded; want service at the rate and an outage noticed", admitted, degraded)
	}
	// A rest is 500 ms at least, and the log has a line for each change.
	if changes, most := len(f.rigs[0].log.lines("redis is")), 2*int(took/(500*time.Millisecond)); changes > most {
		t.Errorf("%d changes of state in %v; want at most %d", changes, took, most)
	}
	proxy.Pass()
	o.recovers(t, f.rigs[0], probing)
	o.inTime(t, budget)
})
