package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/race"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Everything that can run concurrently does so here: decisions, refunds and spends
// after the response, copies of a Decision, the denial cache and the local store,
// changing limits, SCRIPT FLUSH and a Redis that comes and goes. The race detector
// is the check.
func TestFault97NoDataRace(t *testing.T) {
	o := fault(t, "everything at once")
	if race.Enabled {
		o.injected += ", under the race detector"
	} else if long {
		raceAgain(t)
	}
	const burst = 2000
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	store := rigAt(t, "redis://"+proxy.Addr, config{})
	var observed atomic.Int64
	var rate atomic.Int64
	rate.Store(100)
	s := openSite(t, o, sitetest.Config{
		Config: middleware.Config{Store: store.Store, Instances: 2, Headers: middleware.HeadersDraft6 | middleware.HeadersDraft11,
			Observe: func(_ *http.Request, d *middleware.Decision) { observed.Add(int64(len(d.Results)) + int64(d.Status())) }},
		Policies: []middleware.Policy{
			{Name: "fixed", Key: sitetest.Everybody, Limit: gcra.PerDay(burst)},
			{Name: "plan", Key: byClient, LimitFor: func(*http.Request) gcra.Limit { return gcra.PerSecond(rate.Load()) }, MaxDelay: time.Millisecond},
			{Name: "users", Key: byClient, Limit: gcra.PerSecond(1000), Routes: []string{"/users/{id}"}, Shadow: true}},
		Handler: func(_ http.ResponseWriter, r *http.Request) {
			d := middleware.FromContext(r.Context())
			copied := *d
			go func() { _ = copied.Refund(r.Context()) }() // may fail while Redis is away
			go func() { _ = d.Spend(context.WithoutCancel(r.Context()), 1, "fixed", "plan", "users") }()
		}})
	shake := during(func() {
		rate.Store(1 + rand.Int64N(1000))
		switch rand.IntN(6) {
		case 0:
			_ = server.Client().ScriptFlush(context.Background()).Err()
		case 1:
			proxy.Reset()
		case 2:
			proxy.Blackhole()
		default:
			proxy.Pass()
		}
		time.Sleep(30 * time.Millisecond)
	})
	mixed := func() bool { return s.failed.Load() > 0 && s.failed.Load() < s.decisions.Load() }
	stop := time.Now().Add(phase(1500*time.Millisecond, 30*time.Second))
	// The breaker may stay open for all of the short phase: a rest takes up to a
	// second, and a probe may fail.
	last := stop.Add(ample)
	redistest.Together(8, func(g int) {
		for i := 0; time.Now().Before(stop) || !mixed() && time.Now().Before(last); i++ {
			a := s.Do(t, fmt.Sprintf("GET /users/%d", i%3), fmt.Sprint("X-Client: ", (g+i)%4))
			if a.StatusCode != http.StatusOK && a.StatusCode != http.StatusTooManyRequests {
				t.Errorf("got %d; want 200 or 429", a.StatusCode)
			}
			local := []gcra.Charge{daily("local", 10)}
			if _, err := store.Local(1).Take(context.Background(), local); err != nil {
				t.Error(err)
			}
		}
	})
	shake()
	proxy.Pass()
	o.recovers(t, store, 2*time.Second)
	if !mixed() {
		t.Errorf("%d of %d decisions degraded; want some and not all", s.failed.Load(), s.decisions.Load())
	}
}

// raceAgain runs the test under the race detector, where Go can build for it.
func raceAgain(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-race", "-count=1", "-run", "^"+t.Name()+"$", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "C compiler") || strings.Contains(string(out), "-race is not supported") {
		t.Logf("not run under the race detector: %s", out)
		return
	}
	if err != nil {
		t.Errorf("under the race detector: %v\n%s", err, out)
	}
}

// pace calls f n times, perSecond a second, each at its scheduled time whether or
// not earlier calls have returned, and returns how long each took, counted from
// that time. A generator that waits for each answer omits the requests that would
// have come meanwhile (coordinated omission): it sees a stall of a second as one
// slow request.
func pace(n, perSecond int, f func(i int)) []time.Duration {
	took := make([]time.Duration, n)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		time.Sleep(time.Until(due))
		wg.Go(func() {
			f(i)
			took[i] = time.Since(due)
		})
	}
	wg.Wait()
	slices.Sort(took)
	return took
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func TestFault98LoadGeneratorOmitsNoRequest(t *testing.T) {
	o := fault(t, "a stall of 300 ms; five runs")
	const perSecond, stall = 400, 300 * time.Millisecond
	n := amount(300, 4000)
	server := redistest.Start(t)
	store := patientStore(t, server, config{DenialTTL: -1})

	// Each request that is due during the stall waits for its end: half of the 120
	// wait longer than half of it.
	var gate sync.RWMutex
	slow := 0
	for _, d := range pace(n, perSecond, func(i int) {
		if i == n/3 {
			gate.Lock()
			time.Sleep(stall)
			gate.Unlock()
		}
		gate.RLock()
		defer gate.RUnlock()
		if _, err := o.take(store, plenty("stalled")); err != nil {
			t.Error(err)
		}
	}) {
		if d > stall/2 {
			slow++
		}
	}
	if least := int(perSecond*stall/time.Second) / 3; slow < least {
		t.Errorf("%d requests took longer than half of a stall of %v; want at least %d: the others were omitted", slow, stall, least)
	}

	// The same load five times: the differences are the machine's noise.
	const burst = 50
	var p50, p99 []time.Duration
	for run := range 5 {
		limit := gcra.PerSecond(100).WithBurst(burst)
		var passed atomic.Int64
		begin := redisTime(t, server)
		took := pace(n, perSecond, func(int) {
			r, err := o.take(store, gcra.Charge{Subject: fmt.Sprint("run", run), Policy: "p", Limit: limit, Cost: 1})
			if err != nil {
				t.Error(err)
			}
			if r.Allowed {
				passed.Add(1)
			}
		})
		due := int64(redisTime(t, server).Sub(begin) / (10 * time.Millisecond))
		o.atMost(t, passed.Load(), burst+due, fmt.Sprint("run ", run))
		if passed.Load() < burst {
			t.Errorf("run %d: %d passed; want the burst of %d at least", run, passed.Load(), burst)
		}
		p50, p99 = append(p50, quantile(took, 0.5)), append(p99, quantile(took, 0.99))
	}
	slices.Sort(p50)
	slices.Sort(p99)
	t.Logf("five runs of %d at %d a second: p50 %v to %v, median %v; p99 %v to %v, median %v", n, perSecond, p50[0], p50[4], p50[2], p99[0], p99[4], p99[2])
}
