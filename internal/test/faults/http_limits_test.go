package faults

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestFault55ChangedLimitHoldsAtOnce(t *testing.T) {
	o := apart(t, "1/hour to 100/second and back")
	server := redistest.Start(t)
	slow, fast := gcra.PerHour(1), gcra.PerSecond(100)
	for name, store := range map[string]gcra.Store{"Memory": gcra.NewMemory(), "Redis": patientStore(t, server, config{})} {
		var limit atomic.Pointer[gcra.Limit]
		limit.Store(&slow)
		s := openSite(t, o, sitetest.Config{Config: middleware.Config{Store: store}, Policies: []middleware.Policy{
			{Name: "p", Key: sitetest.Everybody, LimitFor: func(*http.Request) gcra.Limit { return *limit.Load() }}}})
		expect(t, name+": 1/hour", s.Statuses(t, "GET /ok", 2), []int{200, 429})

		limit.Store(&fast)
		a := s.Do(t, "GET /ok") // allowed or not: the wait is a second at most
		expect(t, name+": limit in the header", a.Header.Get("RateLimit-Limit"), "100")

		if name == "Redis" {
			if ahead, _ := lead(t, server, "rl:{everybody}:p"); ahead > time.Second {
				t.Errorf("%s: the TAT is %v ahead after a request under 100/second; want at most a second", name, ahead)
			}
		}

		redistest.Eventually(t, time.Second+slack, name+": the raised limit to allow a request", func() bool { return s.Do(t, "GET /ok").StatusCode == 200 })

		limit.Store(&slow)
		passed := 0
		for range 50 {
			if s.Do(t, "GET /ok").StatusCode == http.StatusOK {
				passed++
			}
		}

		o.atMost(t, int64(passed), 1, name+": back at 1/hour")
	}
}

// Clients that get the same Retry-After come back at the same time. Only requests
// that wait in a queue (MaxDelay) get different times, T apart. So a herd must cost
// little and get no more than its limit; jitter is up to the client.
func TestFault56HerdGetsWhatIsDueAndCostsLittle(t *testing.T) {
	o := apart(t, "500 clients that obey Retry-After")
	const herd = 500

	// With a bucket of their own, clients come back as spread out as they came:
	// there is no moment at which all limits are reset.
	now := time.Unix(1_800_000_000, 0)
	start := now
	memory := gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})
	perMinute := gcra.PerMinute(1)
	retries := make(map[time.Duration]int)
	for i := range herd {
		now = start.Add(time.Duration(i) * time.Minute / herd)
		c := gcra.Charge{Subject: fmt.Sprint("client", i), Limit: perMinute, Cost: 1}
		mustTake(t, memory, c)
		r := mustTake(t, memory, c)[0].Result
		retries[now.Add(r.RetryAfter).Sub(start).Truncate(time.Second)]++
	}

	peak := 0
	for _, n := range retries {
		peak = max(peak, n)
	}
	if mean := float64(herd) / 60; float64(peak) > 1.5*mean {
		t.Errorf("%d clients with buckets of their own: a second of %d retries; want at most 1.5 times the mean of %.1f", herd, peak, mean)
	}

	// In a queue each request has a time of its own, T apart.
	delays := make(map[time.Duration]bool)
	for range herd {
		r := mustTake(t, memory, gcra.Charge{Subject: "queue", Limit: gcra.PerSecond(100).WithBurst(1), Cost: 1, MaxDelay: time.Hour, MaxWait: time.Hour})[0].Result
		delays[r.Delay] = true
		if !r.Allowed || r.Delay%(10*time.Millisecond) != 0 {
			t.Fatalf("in the queue: got %+v; want a delay of a multiple of 10 ms", r)
		}
	}

	expect(t, "moments in the queue", len(delays), herd)

	// On one bucket without a queue all come back at once, again and again. The
	// denial cache answers most of them.
	server := redistest.Start(t)
	store := patientStore(t, server, config{})
	limit := gcra.PerSecond(20).WithBurst(1)
	stop := time.Now().Add(phase(1500*time.Millisecond, 20*time.Second))
	var passed, asked atomic.Int64
	redistest.ResetStats(t, server.Client())
	begin := redisTime(t, server)

	redistest.Together(herd, func(int) {
		for time.Now().Before(stop) {
			r, err := o.take(store, gcra.Charge{Subject: "herd", Policy: "p", Limit: limit, Cost: 1})
			if err != nil {
				t.Error(err)
				return
			}

			asked.Add(1)
			if r.Allowed {
				passed.Add(1)
				return // served
			}

			time.Sleep(r.RetryAfter)
		}
	})

	took := redisTime(t, server).Sub(begin)
	o.atMost(t, passed.Load(), 1+int64(took/(50*time.Millisecond)), "the herd")
	scripts := redistest.Calls(t, server.Client(), "evalsha") + redistest.Calls(t, server.Client(), "eval")
	t.Logf("%d of %d requests allowed in %v, with %d scripts", passed.Load(), asked.Load(), took, scripts)

	if passed.Load() < 3 || scripts > asked.Load()/4 {
		t.Errorf("a herd of %d: %d of %d requests allowed, with %d scripts; want at least 3 allowed, and a script for one request in four at most", herd, passed.Load(), asked.Load(), scripts)
	}
}
