package redisstore_test

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// A reset of the local store fills the bucket, also while Redis does not answer: what was granted alone on it, and what
// Redis had said of it before, no longer count.
func TestLocalResetAfterGrants(t *testing.T) {
	for _, limit := range []gcra.Limit{gcra.PerHour(10), gcra.Quota(10, gcra.Yearly)} {
		proxy := redistest.NewProxy(t, redistest.Any(t).Options().Addr)
		r := openStore(t, "redis://"+proxy.Addr+"/0", config{Timeout: patience, Logger: quiet})
		c := gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 7}
		gcratest.MustTake(t, r, c)
		proxy.Refuse()
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
