package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// exactlyTwenty has 400 callers take from each of 30 subjects, all at once, and
// checks that 20 calls of each are allowed.
func exactlyTwenty(t *testing.T, r *redisstore.Store, round int) {
	t.Helper()
	const subjects = 30
	var allowed [subjects]atomic.Int64
	redistest.Together(400, func(caller int) {
		for i := range subjects {
			n := (i + caller) % subjects
			c := []gcra.Charge{hourly(fmt.Sprint(round, " ", n), 20), hourly(fmt.Sprint(round, " ", n), 30)}
			c[1].Policy = "q"
			if ok, err := r.Take(t.Context(), c[:1+n%2]); err != nil {
				t.Error(err)
			} else if ok {
				allowed[n].Add(1)
			}
		}
	})
	for n := range allowed {
		if got := allowed[n].Load(); got != 20 {
			t.Errorf("subject %d: got %d allowed of 400; want 20", n, got)
		}
	}
}

// On a cluster one script decides for all subjects of a node, or one for each
// subject where the server runs no such script.
func TestOneScriptForEachNode(t *testing.T) {
	cluster := redistest.StartCluster(t)
	r := openStore(t, "redis://"+strings.Join(cluster.Addrs(), ",")+"?read_timeout=20s")
	r.Timeout, r.NoDenialCache = patience, true
	log := logged(r)
	gcratest.MustTake(t, r, hourly("first", 20))
	for _, node := range cluster.Nodes {
		redistest.ResetStats(t, node.Client())
	}
	exactlyTwenty(t, r, 0)

	var calls, failed int64
	for _, node := range cluster.Nodes[:3] {
		calls += redistest.Calls(t, node.Client(), "evalsha") + redistest.Calls(t, node.Client(), "eval")
		failed += int64(redistest.Stat(t, node.Client(), "errorstats", "errorstat_ERR:count="))
	}
	const ops = 400 * 30
	switch {
	case runsFlags(t, cluster.Nodes[0]) && calls > ops/4:
		t.Errorf("got %d scripts for %d admissions; want one for all that wait", calls, ops)
	case !runsFlags(t, cluster.Nodes[0]) && failed > 2*3: // two batches may be in flight to each master
		t.Errorf("got %d scripts answered with an error; want none after the first batches", failed)
	}
	t.Logf("%d scripts for %d admissions", calls, ops)
	if lines := log.Lines(""); len(lines) > 0 {
		t.Errorf("got log lines %q; want none", lines)
	}
}

// runsFlags reports whether a server runs scripts with flags: Redis 7.0 and newer.
func runsFlags(t *testing.T, s *redistest.Server) bool {
	t.Helper()
	return s.Client().Eval(t.Context(), "#!lua flags=allow-cross-slot-keys\nreturn 1", nil).Err() == nil
}

// A client whose topology is wrong sends scripts to nodes that do not have all keys.
// Each admission and each refund is made once all the same.
func TestScriptOnAWrongNode(t *testing.T) {
	cluster := redistest.StartCluster(t)
	o := cluster.Options()
	o.ReadTimeout = patience
	o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: cluster.Nodes[0].Addr}}}}, nil
	}
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { client.Close() })
	r := newStore(client)
	gcratest.MustTake(t, r, hourly("first", 20))
	exactlyTwenty(t, r, 0)

	r.NoDenialCache = false
	redistest.Together(30, func(n int) {
		if err := r.Refund(t.Context(), []gcra.Charge{hourly(fmt.Sprint("0 ", n), 20)}); err != nil {
			t.Error(err)
		}
	})
	for n := range 30 {
		if got := spent(t, r, fmt.Sprint("0 ", n), 20); got != 19 {
			t.Errorf("subject %d after a refund: got %d spent; want 19", n, got)
		}
	}
}

// While a master and its replica change places under load, no charge is lost or made
// twice: the failover is orderly, so no write is lost either. On a busy machine nodes
// may lose sight of each other, and answer CLUSTERDOWN for a while.
func TestFailoverUnderBatchesForManySlots(t *testing.T) {
	cluster := redistest.StartCluster(t)
	r := openStore(t, "redis://"+strings.Join(cluster.Addrs(), ",")+"?read_timeout=20s")
	r.Timeout, r.NoDenialCache = patience, true
	logged(r)
	gcratest.MustTake(t, r, hourly("first", 20))
	limit := gcra.Limit{Count: 1, Per: 5 * time.Minute, Burst: 100_000}
	const subjects = 50
	var allowed [subjects]atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		redistest.Together(32, func(caller int) {
			for i := caller; ctx.Err() == nil; i++ {
				n := i % subjects
				res, err := gcra.Take(t.Context(), r, gcra.Charge{Subject: fmt.Sprint(n), Policy: "p", Limit: limit, Cost: 1})
				switch {
				case err != nil && !strings.Contains(err.Error(), "CLUSTERDOWN") && !errors.Is(err, redisstore.ErrUnavailable):
					t.Error(err)
				case err == nil && res.Allowed:
					allowed[n].Add(1)
				}
			}
		})
	}()
	replica := cluster.Nodes[3].Client()
	redistest.Eventually(t, patience, "the failover", func() bool {
		// An error while one is under way, which may have to be begun again.
		_ = replica.Do(t.Context(), "cluster", "failover").Err()
		return strings.Contains(replica.Info(t.Context(), "replication").Val(), "role:master")
	})
	before := r.Stats().Operations
	redistest.Eventually(t, patience, "load after the failover", func() bool { return r.Stats().Operations > before+1000 })
	stop()
	<-done
	for n := range allowed {
		var peek gcra.Result
		redistest.Eventually(t, patience, "an answer", func() (ok bool) {
			var err error
			peek, err = gcra.Peek(t.Context(), r, fmt.Sprint(n), "p", limit)
			return err == nil
		})
		if got, want := limit.Burst-peek.Remaining, allowed[n].Load(); got != want {
			t.Errorf("subject %d: got %d spent; want %d, as were allowed", n, got, want)
		}
	}
}
