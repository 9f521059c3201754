package redisstore_test

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
)

// A reset is for all processes. The one that made it sees it at once, another
// that has cached a denial after DenialTTL.
func TestResetOnRedis(t *testing.T) {
	client := anyRedis(t)
	limit := gcra.PerHour(2)
	charge := gcra.Charge{Subject: t.Name(), Policy: "p", Limit: limit, Cost: 1}
	now := time.Now()
	ours, other := redisstore.New(client), redisstore.New(client)
	for _, r := range []*redisstore.Store{ours, other} {
		r.Timeout = 10 * time.Second
		r.SetClock(func() time.Time { return now })
	}
	for range 2 {
		gcratest.MustTake(t, ours, charge)
	}
	for _, r := range []*redisstore.Store{ours, other} {
		if got := gcratest.MustTake(t, r, charge)[0].Result; got.Allowed {
			t.Fatalf("the third of 2: got %+v; want a denial, which is then cached", got)
		}
	}
	if err := gcra.Reset(t.Context(), ours, t.Name(), "p", limit); err != nil {
		t.Fatal(err)
	}
	if got := gcratest.MustTake(t, ours, charge)[0].Result; !got.Allowed || got.Remaining != 1 {
		t.Errorf("after the reset, here: got %+v; want allowed, 1 remaining", got)
	}
	if got := gcratest.MustTake(t, other, charge)[0].Result; got.Allowed {
		t.Errorf("after the reset, elsewhere: got %+v; want the denial that is cached", got)
	}
	now = now.Add(time.Second + time.Millisecond) // the default DenialTTL
	if got := gcratest.MustTake(t, other, charge)[0].Result; !got.Allowed || got.Remaining != 0 {
		t.Errorf("after the reset and DenialTTL, elsewhere: got %+v; want allowed, 0 remaining", got)
	}
	if got, err := gcra.Peek(t.Context(), ours, t.Name(), "p", limit); err != nil || got.Remaining != 0 {
		t.Errorf("a peek: got %+v, %v; want 0 remaining", got, err)
	}
}
