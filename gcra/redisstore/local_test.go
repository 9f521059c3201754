package redisstore_test

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// The local store starts from the last known state of each key.
func TestLocalStartsFromRedis(t *testing.T) {
	r := storeOn(t, redistest.Any(t), config{Timeout: patience})
	for range 7 {
		gcratest.MustTake(t, r, hourly("s", 10))
	}
	peek, err := gcra.Peek(t.Context(), r.Local(1), gcra.Charge{Subject: "s", Policy: "p", Limit: hourly("s", 10).Limit})
	if err != nil || peek.Remaining != 3 {
		t.Errorf("after 7 of 10 in Redis: got %+v, %v in the local store; want 3 remaining", peek, err)
	}
}

// A share of an unused quota has room for one request, and says so, also when another limit denies.
func TestLocalRemainingOfASmallQuota(t *testing.T) {
	local := newStore(t, redistest.Any(t), config{}).Local(3)
	small := gcra.Charge{Subject: "s", Policy: "small", Limit: gcra.Quota(2, gcra.Yearly)}
	never := hourly("s", 1)
	never.Cost = 2
	charges := []gcra.Charge{small, never}
	if allowed, err := local.Take(t.Context(), charges); err != nil || allowed || charges[0].Result.Remaining != 1 {
		t.Errorf("2 a year for 3 servers, beside a denial: got %+v, %v; want 1 remaining", charges[0].Result, err)
	}
	if got, err := gcra.Peek(t.Context(), local, small); err != nil || got.Remaining != 1 {
		t.Errorf("2 a year for 3 servers, unused: got %+v, %v; want 1 remaining", got, err)
	}
	if got := gcratest.MustTake(t, local, small)[0].Result; !got.Allowed || got.Remaining != 0 {
		t.Errorf("the first request: got %+v; want it allowed, and 0 remaining", got)
	}
	if got, err := gcra.Peek(t.Context(), local, small); err != nil || got.Remaining != 0 {
		t.Errorf("after it: got %+v, %v; want 0 remaining", got, err)
	}
}

// A reset of the local store fills the bucket, also while Redis does not answer: what was granted alone on it, and what
// Redis had said of it before, no longer count.
func TestLocalResetAfterGrants(t *testing.T) {
	for _, limit := range []gcra.Limit{gcra.PerHour(10), gcra.Quota(10, gcra.Yearly)} {
		proxy := redistest.NewProxy(t, redistest.Any(t).Options().Addr)
		r := openStore(t, "redis://"+proxy.Addr+"/0", config{Logger: quiet})
		c := gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 7}
		gcratest.MustTake(t, r, c)
		proxy.Blackhole()
		breakerOpens(t, r)
		c.Cost = 3
		if got := gcratest.MustTake(t, r.Local(1), c)[0].Result; !got.Allowed {
			t.Fatalf("%v: 3 of 10 alone, after 7: got %+v; want it allowed", limit, got)
		}

		if err := gcra.Reset(t.Context(), r.Local(1), c); err != nil {
			t.Errorf("%v: reset: %v", limit, err)
		}
		c.Cost = 10
		if got := gcratest.MustTake(t, r.Local(1), c)[0].Result; !got.Allowed {
			t.Errorf("%v: 10 of 10 after the reset: got %+v; want them allowed", limit, got)
		}
	}
}

// What Redis has charged and what this server has granted alone count together before the report, of a rate and a quota.
func TestUnreportedCountsBesideRedis(t *testing.T) {
	for _, limit := range []gcra.Limit{gcra.PerHour(10), gcra.Quota(10, gcra.Yearly)} {
		r := newStore(t, anyRedis(t), config{DenialTTL: time.Second})
		c := gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 8}
		gcratest.MustTake(t, r, c)
		c.Cost = 2
		if got := gcratest.MustTake(t, r.Local(1), c)[0].Result; !got.Allowed {
			t.Fatalf("%v: 2 of 10 alone, after 8: got %+v; want it allowed", limit, got)
		}
		if got := gcratest.MustTake(t, r, c)[0].Result; got.Allowed {
			t.Errorf("%v: 2 of 10, after 8 and 2: got %+v; want it denied", limit, got)
		}
	}
}

// A peek changes nothing that is unreported, though it does not know the MaxDelay of the limit.
func TestPeekKeepsUnreported(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	r, other := openStore(t, "redis://"+proxy.Addr+"/0", config{Logger: quiet}), openStore(t, server.URL(), config{Timeout: patience})
	c := hourly("s", 10)
	c.MaxDelay, c.MaxWait = 5*time.Hour, 5*time.Hour
	for range 12 {
		gcratest.MustTake(t, r, c)
	}
	proxy.Blackhole()
	breakerOpens(t, r)
	granted(t, r, 1, c)
	granted(t, r, 1, c)

	if _, err := gcra.Peek(t.Context(), r, gcra.Charge{Subject: "s", Policy: "p", Limit: c.Limit}); err == nil {
		t.Fatal("a peek was answered; want an outage")
	}
	proxy.Pass()
	c.Peek = true
	redistest.Eventually(t, patience, "14 units to be spent", func() bool {
		res, err := gcra.Take(t.Context(), other, c)
		return err == nil && res.ResetAfter > 13*time.Hour
	})
}

// What a request costs in the end is charged late. It is not reported beyond the clamp of the limit, from where the next request would bring it down.
func TestLateGrantIsNotReportedBeyondTheClamp(t *testing.T) {
	client := redistest.Start(t).Client()
	cfg := config{Prefix: newPrefix()}
	r, other := newStore(t, client, cfg), newStore(t, client, cfg)
	c := hourly("s", 10)
	full := c
	full.Cost = 10
	gcratest.MustTake(t, other, full)
	settle := c
	settle.Cost, settle.Late = 4, true

	whenReporting(t, client, 1, func() {
		granted(t, r, 1, c)
		granted(t, r, 1, settle)
	})

	settle.Peek = true
	if res, err := gcra.Take(t.Context(), other, settle); err != nil || res.ResetAfter > 10*time.Hour {
		t.Errorf("got %+v, %v; want a bucket that is full in 10 hours", res, err)
	}
	if s := r.Stats(); s.ReportedUnits > 0 {
		t.Errorf("got %d units reported; want none while the bucket has no room", s.ReportedUnits)
	}
}
