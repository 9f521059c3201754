package faults

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// eachFramework runs a test once for every framework.
func eachFramework(t *testing.T, test func(*testing.T, sitetest.Framework)) {
	for _, f := range sitetest.Frameworks {
		t.Run(strings.ReplaceAll(f.Name, "/", ""), func(t *testing.T) { test(t, f) })
	}
}

// site is a limited server that counts and times its decisions.
type site struct {
	*sitetest.Site
	decisions atomic.Int64
	failed    atomic.Int64 // decisions with an Err

	mu   sync.Mutex
	took []time.Duration // of all decisions
}

func openSite(t *testing.T, o *outcome, cfg sitetest.Config) *site {
	t.Helper()
	s := new(site)
	observe := cfg.Observe
	cfg.Observe = func(r *http.Request, d *middleware.Decision) {
		o.decided(d.Took)
		s.decisions.Add(1)
		if d.Err != nil {
			s.failed.Add(1)
		}
		s.mu.Lock()
		s.took = append(s.took, d.Took)
		s.mu.Unlock()

		if observe != nil {
			observe(r, d)
		}
	}

	s.Site = sitetest.Start(t, cfg)
	return s
}

// underLoad is a site on a store for [site.traffic], which does not reach its
// limit.
func underLoad(t *testing.T, o *outcome, r *rig) *site {
	t.Helper()
	return openSite(t, o, sitetest.Config{Config: middleware.Config{Store: r.Store}, Policies: []middleware.Policy{
		{Name: "all", Key: byClient, Limit: gcra.PerSecond(1000)}}})
}

// codes counts answers by their status.
type codes map[int]int

// traffic sends requests of several users at a pace for a while.
func (s *site) traffic(t *testing.T, perSecond int, d time.Duration) codes {
	t.Helper()
	got := make(codes)
	var mu sync.Mutex
	var wg sync.WaitGroup
	gap := time.Second / time.Duration(perSecond)
	for i, start := 0, time.Now(); time.Since(start) < d; i++ {
		time.Sleep(time.Until(start.Add(time.Duration(i) * gap)))
		wg.Go(func() {
			resp := s.Do(t, "GET /ok", fmt.Sprint("X-Client: user", i%10))
			mu.Lock()
			defer mu.Unlock()
			got[resp.StatusCode]++
		})
	}

	wg.Wait()
	return got
}

// only fails when an answer had another status than these.
func (c codes) only(t *testing.T, when string, allowed ...int) {
	t.Helper()
	for code, n := range c {
		if !slices.Contains(allowed, code) {
			t.Errorf("%s: %d answers with status %d; want only %v", when, n, code, allowed)
		}
	}
}

// bucketKeys are all keys in the server but that in which stores count each other.
func bucketKeys(t *testing.T, s *redistest.Server) []string {
	t.Helper()
	keys, err := s.Client().Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, "rl:{instances}") })
}

// patientStore is a store that does not fail on a busy machine.
func patientStore(t *testing.T, s *redistest.Server, cfg config) *redisstore.Store {
	t.Helper()
	cfg.Timeout = ample
	return openStore(t, s.URL()+"?write_timeout=20s&dial_timeout=20s&pool_timeout=20s", cfg)
}

// byClient counts by a header that any client can write, as no real server should.
func byClient(r *http.Request) (string, error) { return r.Header.Get("X-Client"), nil }

// expect compares what is printed of both.
func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want); g != w {
		t.Errorf("%s: got %s; want %s", what, g, w)
	}
}

// lead is how far the TAT stored under the key is ahead of Redis's clock, and how
// long the key has to live, at one moment.
func lead(t *testing.T, s *redistest.Server, key string) (ahead, ttl time.Duration) {
	t.Helper()
	v, err := s.Client().Eval(t.Context(), `local time = redis.call('TIME')
local now = (time[1] - 1735689600) * 10000000 + time[2] * 10
return { (tonumber(redis.call('GET', KEYS[1]) or now) or now) - now, redis.call('PTTL', KEYS[1]) }`, []string{key}).Int64Slice()
	if err != nil {
		t.Fatalf("the TAT of %s: %v", key, err)
	}
	return time.Duration(v[0]) * 100, time.Duration(v[1]) * time.Millisecond
}
