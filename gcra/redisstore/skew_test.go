package redisstore_test

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// Stores whose clocks differ by hours share one limit, with the same waits.
func TestClockSkew(t *testing.T) {
	client := unhurried(t, redistest.Start(t).Addr)
	var stores []*redisstore.Store
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour} {
		s := redisstore.New(client)
		s.Timeout = patience
		s.SetClock(func() time.Time { return time.Now().Add(skew) })
		stores = append(stores, s)
	}
	const burst = 30
	c := gcra.Charge{Subject: "everybody", Policy: "p", Limit: gcra.PerDay(burst), Cost: 1}
	for i := range 2 * burst {
		res, err := gcra.Take(t.Context(), stores[i%len(stores)], c)
		if want := i < burst; err != nil || res.Allowed != want {
			t.Errorf("call %d: got %+v, %v; want allowed %v", i, res, err, want)
		}
		if day := 24 * time.Hour; res.ResetAfter > day || res.RetryAfter > day/burst+time.Minute {
			t.Errorf("call %d: got %+v; want waits of this limit", i, res)
		}
	}
}
