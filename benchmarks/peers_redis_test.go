package main

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Every limiter on Redis keeps the tight limit, and admits everything where
// measurements count on it.
func TestRedisContestants(t *testing.T) {
	d := testRedis(t)
	builders, err := redisContestants(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []limit{tight, roomy, endless, lasting} {
		checkContestants(t, d, l, builders)
	}
}

// So do those on a cluster and on a Ring.
func TestDeployments(t *testing.T) {
	redistest.Need(t)
	for name, start := range map[string]func(testing.TB) deployment{"cluster": sixNodes, "Ring": ringOfThree} {
		t.Run(name, func(t *testing.T) {
			d := start(t)
			checkContestants(t, d, tight, []builder{newOurs, newRedisRate})
			checkContestants(t, d, roomy, []builder{newOurs, newRedisRate})
			before, err := d.cpu(t.Context())
			if err != nil || before <= 0 {
				t.Errorf("CPU time of all servers is %v, error %v; want some", before, err)
			}
		})
	}
}

// Those with a rate and a quota keep each of the two.
func TestRateAndQuota(t *testing.T) {
	d := testRedis(t)
	if err := assertsQuota(d); err != nil {
		t.Error(err)
	}
	for _, rate := range []limit{tight, roomy} {
		checkContestants(t, d, rate, withQuota(roomy))
	}
}

func checkContestants(t *testing.T, d deployment, l limit, builders []builder) {
	t.Helper()
	cs, err := build(d, l, builders...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(cs) })
	for _, c := range cs {
		checkContestant(t, c, l, "redis:"+c.name)
	}
}

func checkContestant(t *testing.T, c contestant, l limit, where string) {
	t.Helper()
	if l == tight && !isCommand(c.name) {
		if err := asserts(c, "asserts:"+where); err != nil {
			t.Error(err)
		}
		return
	}
	got, err := admitted(c, "admits:"+where, 200)
	if err != nil || got != 200 {
		t.Errorf("%s: admitted %d of 200 of %+v, error %v; want all", c.name, got, l, err)
	}
}

func TestOursConcurrently(t *testing.T) {
	c, err := newOurs(testRedis(t), tight)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 400 {
		wg.Go(func() {
			ok, err := c.once("together")
			if err != nil {
				t.Error(err)
			}
			if ok {
				passed.Add(1)
			}
		})
	}
	wg.Wait()
	if passed.Load() != tight.burst {
		t.Errorf("admitted %d of 400; want %d", passed.Load(), tight.burst)
	}
}
