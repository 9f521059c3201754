package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
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

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
