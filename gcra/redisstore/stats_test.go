package redisstore_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

func TestStats(t *testing.T) {
	server := redistest.Any(t).Options().Addr
	r := storeOn(t, patientClient(t, server), config{Timeout: 10 * time.Second})
	if got := r.Stats(); got.Batches != 0 || got.Operations != 0 || len(got.Servers) != 1 {
		t.Errorf("before first use: got %+v; want nothing done, one server", got)
	}
	c := hourly(t.Name(), 3)
	for range 10 {
		gcratest.MustTake(t, r, c)
	}
	redistest.Eventually(t, patience, "all to be counted", func() bool {
		s := r.Stats()
		return s.Operations+s.CachedDenials == 10 && s.Servers[0].Kind != ""
	})
	got := r.Stats()

	// Three are allowed. The first denial is by Redis or by the cache, the others by the cache.
	if got.Batches != got.Operations || got.Batches < 3 || got.Batches > 4 || got.Batches+got.CachedDenials != 10 || got.FailedBatches != 0 {
		t.Errorf("10 calls on a limit of 3: got %+v; want 3 or 4 batches of 1, and cached denials for the rest", got)
	}
	if got.BatchTime <= 0 || got.Servers[0] != (redisstats.ServerState{Server: server, Breaker: redisstats.BreakerClosed, Kind: redisstats.OneKeyspace}) {
		t.Errorf("got %+v; want a batch time, and %s, one keyspace with its breaker closed", got, server)
	}
}

func TestStatsOfAnOutage(t *testing.T) {
	r := storeOn(t, newClient(t, &redis.Options{Addr: "127.0.0.1:1"}), config{})
	for range 10 {
		_, _ = gcra.Take(t.Context(), r, hourly("s", 100))
	}
	if got := r.Stats(); got.FailedBatches < 3 || got.Batches != 0 || got.Servers[0].Breaker != redisstats.BreakerOpen {
		t.Errorf("no server: got %+v; want at least 3 failures and an open breaker", got)
	}
}

// Stats of a cluster forget a server that was not used for a minute, and so the entry
// for calls before the nodes are known.
func TestStatsForgetServers(t *testing.T) {
	t.Parallel()
	var passed atomic.Int64
	start := time.Now()
	r := storeOn(t, redistest.StartCluster(t).Client(), config{Timeout: 10 * time.Second})
	r.SetClock(func() time.Time { return start.Add(time.Duration(passed.Load())) })

	take := func() {
		for i := range 50 {
			gcratest.MustTake(t, r, hourly(fmt.Sprint(i), 100))
		}
	}

	take()
	if got := r.Stats().Servers; len(got) != 4 || got[0].Server != "" {
		t.Errorf("got %v; want three masters, and one without an address", got)
	}
	passed.Add(int64(59 * time.Second))
	take()
	passed.Add(int64(12 * time.Second))
	if got := r.Stats().Servers; len(got) != 3 || got[0].Server == "" {
		t.Errorf("later: got %v; want three masters", got)
	}
}

// While a breaker is not closed, Stats says why. The reason goes when the server answers again.
func TestReasonGoes(t *testing.T) {
	server := redistest.Start(t)
	do(t, server, "acl setuser a on >hunter2 ~rl:* +eval +mget +set +time")
	r := openStore(t, "redis://a:hunter2@"+server.Addr, config{Logger: quiet})
	breakerOpens(t, r)
	if reason := r.Stats().Servers[0].Reason; !strings.Contains(reason, "evalsha") && !strings.Contains(reason, "no answer") {
		t.Errorf("got reason %q; want the command that the user may not run", reason)
	}
	do(t, server, "acl setuser a +evalsha")
	redistest.Eventually(t, patience, "no reason", func() bool {
		return answers(r) && r.Stats().Servers[0] == redisstats.ServerState{Server: server.Addr, Breaker: redisstats.BreakerClosed, Kind: redisstats.OneKeyspace}
	})
}
