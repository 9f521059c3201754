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
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
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

// scriptsForMany has 400 callers take 20 times each, from a subject of their own, and
// returns how many scripts the masters have run for that.
func scriptsForMany(t *testing.T, cluster *redistest.Cluster, r *redisstore.Store) (n int64) {
	t.Helper()
	for _, node := range cluster.Nodes[:3] {
		redistest.ResetStats(t, node.Client())
	}
	redistest.Together(400, func(caller int) {
		for range 20 {
			if _, err := gcra.Take(t.Context(), r, hourly(fmt.Sprint("many ", caller), 20)); err != nil {
				t.Error(err)
			}
		}
	})

	for _, node := range cluster.Nodes[:3] {
		n += redistest.Calls(t, node.Client(), "evalsha") + redistest.Calls(t, node.Client(), "eval")
	}
	t.Logf("%d scripts for 400 callers with 20 calls each", n)
	return n
}

// fewScripts is more than batches of several subjects need for that, and less than one
// script for each subject of a batch.
const fewScripts = 400 * 20 / 4

// On a cluster one script decides for all subjects of a node, or one for each
// subject where the server runs no such script.
func TestOneScriptForEachNode(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"plain": nil, "without GET": {"--rename-command", "GET", ""}} {
		t.Run(name, func(t *testing.T) {
			cluster := redistest.StartCluster(t, args...)
			log := new(diagtest.Text)
			r := openStore(t, "redis://"+strings.Join(cluster.Addrs(), ","), config{Timeout: patience, DenialTTL: -1, Logger: log.Logger()})
			gcratest.MustTake(t, r, hourly("first", 20))
			exactlyTwenty(t, r, 0)
			n := scriptsForMany(t, cluster, r)

			var failed int
			for _, node := range cluster.Nodes[:3] {
				failed += redistest.Stat(t, node.Client(), "errorstats", "errorstat_ERR:count=")
			}
			switch {
			case runsFlags(t, cluster.Nodes[0]) && n > fewScripts:
				t.Errorf("got %d scripts; want one for all that wait, at most %d", n, fewScripts)
			case !runsFlags(t, cluster.Nodes[0]) && failed > 0:
				t.Errorf("got %d scripts answered with an error; want none after the first batches", failed)
			}

			if lines := log.Lines(""); len(lines) > 0 {
				t.Errorf("got log lines %q; want none", lines)
			}
		})
	}
}

// Masters without memory answer a script for several slots with an error, and count as
// failed. When they have memory again, their batches are one script again.
func TestOneScriptForEachNodeAfterAnOutage(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	if !runsFlags(t, cluster.Nodes[0]) {
		t.Skip("needs a server that runs scripts for several slots, such as Redis 7.0")
	}
	r := openStore(t, "redis://"+strings.Join(cluster.Addrs(), ","), config{Timeout: patience, DenialTTL: -1, Logger: quiet})
	exactlyTwenty(t, r, 0)

	setMemory := func(bytes string) {
		for _, node := range cluster.Nodes {
			do(t, node, "config set maxmemory "+bytes)
		}
	}

	setMemory("1")
	var unavailable atomic.Int64
	redistest.Together(400, func(caller int) {
		for call := range 20 {
			switch _, err := r.Take(t.Context(), []gcra.Charge{hourly(fmt.Sprint("full ", caller, call), 20)}); {
			case errors.Is(err, redisstore.ErrUnavailable):
				unavailable.Add(1)
			case err == nil || !strings.Contains(err.Error(), "OOM"):
				t.Errorf("without memory: got %v; want OOM", err)
			}
		}
	})

	if unavailable.Load() == 0 {
		t.Error("got no ErrUnavailable without memory; want the breakers to open")
	}
	setMemory("0")
	for n := range 30 {
		redistest.Eventually(t, patience, "an answer", func() bool {
			_, err := r.Take(t.Context(), []gcra.Charge{hourly(fmt.Sprint("back ", n), 20)})
			return err == nil
		})
	}

	if n := scriptsForMany(t, cluster, r); n > fewScripts {
		t.Errorf("got %d scripts after the outage; want one for all that wait, at most %d", n, fewScripts)
	}
}

// runsFlags reports whether a server runs scripts with flags: Redis 7.0 and newer.
func runsFlags(t *testing.T, s *redistest.Server) bool {
	t.Helper()
	return s.Client().Eval(t.Context(), "#!lua flags=allow-cross-slot-keys\nreturn 1", nil).Err() == nil
}

// An errorReply is an error that a server answers.
type errorReply string

func (e errorReply) Error() string { return string(e) }
func (errorReply) RedisError()     {}

// onScriptsForMany has f answer all scripts for several slots, and counts them.
func onScriptsForMany(t *testing.T, cluster *redistest.Cluster, f func() error) (r *redisstore.Store, scripts *atomic.Int64) {
	t.Helper()
	scripts = new(atomic.Int64)
	o := cluster.Options()
	o.ReadTimeout = patience
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { client.Close() })

	client.OnNewNode(func(node *redis.Client) {
		node.AddHook(scriptHook(func(cmd redis.Cmder) error {
			if cmd.Args()[2] != 0 {
				return nil
			}
			scripts.Add(1)
			return f()
		}))
	})

	return newStore(t, client, config{}), scripts
}

// Redis 7.4 may answer so while a slot moves. Later scripts for several slots are answered,
// so they are not left out for a minute.
func TestScriptForManySlotsWhileASlotMoves(t *testing.T) {
	t.Parallel()
	r, scripts := onScriptsForMany(t, redistest.StartCluster(t), func() error {
		return errorReply("ERR Script attempted to access a non local key in a cluster node script: 41fa, on @user_script:78.")
	})
	gcratest.MustTake(t, r, hourly("first", 20))
	exactlyTwenty(t, r, 0)
	before := scripts.Load()
	exactlyTwenty(t, r, 1)
	if n := scripts.Load() - before; before == 0 || n == 0 {
		t.Errorf("got %d scripts for several slots, and %d more after the errors; want some each", before, n)
	}
}

// A server that answers a script for several slots with an error gets the next one a
// minute later.
func TestScriptForManySlotsIsTriedAgain(t *testing.T) {
	t.Parallel()
	r, scripts := onScriptsForMany(t, redistest.StartCluster(t), func() error {
		return errorReply("ERR Error running script: Script killed by user with SCRIPT KILL. script: 41fa, on @user_script:1.")
	})
	var later atomic.Int64
	r.SetClock(func() time.Time { return time.Now().Add(time.Duration(later.Load())) })
	gcratest.MustTake(t, r, hourly("first", 20))

	exactlyTwenty(t, r, 0)
	before := scripts.Load()
	exactlyTwenty(t, r, 1)
	if n := scripts.Load() - before; before == 0 || n > 0 {
		t.Errorf("got %d scripts for several slots, and %d more at once; want some and no more", before, n)
	}
	later.Store(int64(2 * time.Minute))
	exactlyTwenty(t, r, 2)

	if scripts.Load() == before {
		t.Error("got no script for several slots after two minutes; want one")
	}
}

// A script that was answered with an error may have charged all the same. Then it is not sent again: its callers get the
// error, and the next scripts are for one subject each.
func TestScriptForManySlotsMayHaveRun(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	if !runsFlags(t, cluster.Nodes[0]) {
		t.Skip("needs a server that runs scripts for several slots, such as Redis 7.0")
	}

	for name, tt := range map[string]struct {
		user string // of Redis
		hook func(node *redis.Client)
		want string
	}{
		"a proxy loses the node after the script": {
			hook: func(node *redis.Client) { node.AddHook(lostAfter{}) },
			want: "upstream connection failure",
		},
		"the user may write some keys only": {user: "limiter", want: "some keys are written"},
	} {
		t.Run(name, func(t *testing.T) {
			o := cluster.Options()
			o.ReadTimeout = patience
			if tt.user != "" {
				o.Username, o.Password = tt.user, "hunter2"
			}
			client := redis.NewClusterClient(o)
			t.Cleanup(func() { client.Close() })
			if tt.hook != nil {
				client.OnNewNode(tt.hook)
			}
			cfg := config{Prefix: newPrefix(), Logger: quiet}

			r, own := newStore(t, client, cfg), newStore(t, cluster.Client(), cfg)
			if tt.user != "" {
				for _, node := range cluster.Nodes {
					do(t, node, fmt.Sprintf("acl setuser %s on >hunter2 +@all ~%s*:p %%R~%s*:read", tt.user, r.Prefix(), r.Prefix()))
				}
			}

			gcratest.MustTake(t, r, hourly("first", 20))

			// The first scripts wait for all callers, so that the next ones are for several slots.
			all := make(chan struct{})
			wait := scriptHook(func(redis.Cmder) error { <-all; return nil })
			err := client.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
				node.AddHook(wait)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}

			// Each fourth request fails for the user when it has written a key. In a script for several slots it is not alone.
			var failed atomic.Int64
			const subjects = 400
			together(subjects, all, func(i int) {
				charges := []gcra.Charge{hourly(fmt.Sprint(i), 20)}
				fourth := i%4 == 3
				if fourth {
					charges = append(charges, charges[0])
					charges[1].Policy = "read"
				}
				_, err := r.Take(t.Context(), charges)
				if err != nil && !fourth && strings.Contains(err.Error(), tt.want) {
					failed.Add(1)
				}
			})

			if failed.Load() == 0 {
				t.Errorf("no call got the error %q; want those of a script for several slots", tt.want)
			}
			for i := range subjects {
				if subject := fmt.Sprint(i); i%4 != 3 && spent(t, own, subject, 20) > 1 {
					t.Errorf("subject %q: got %d spent; want at most 1", subject, spent(t, own, subject, 20))
				}
			}
		})
	}
}

// lostAfter answers each script for several slots, after it has run, as a proxy that has lost the node.
type lostAfter struct{ redis.Hook }

func (lostAfter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (lostAfter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (lostAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && cmd.Name() == "evalsha" && cmd.Args()[2] == 0 {
			err = errorReply("ERR upstream connection failure")
			cmd.SetErr(err)
		}
		return err
	}
}

// A client whose topology is wrong sends scripts to nodes that do not have all keys.
// Each admission and each refund is made once all the same.
func TestScriptOnAWrongNode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	o := cluster.Options()
	o.ReadTimeout = patience
	o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: cluster.Nodes[0].Addr}}}}, nil
	}
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { client.Close() })
	r := newStore(t, client, config{})
	gcratest.MustTake(t, r, hourly("first", 20))
	exactlyTwenty(t, r, 0)

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
	t.Parallel()
	cluster := redistest.StartCluster(t)
	r := openStore(t, "redis://"+strings.Join(cluster.Addrs(), ","), config{Timeout: patience, DenialTTL: -1, Logger: quiet})
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
			peek, err = gcra.Peek(t.Context(), r, gcra.Charge{Subject: fmt.Sprint(n), Policy: "p", Limit: limit})
			return err == nil
		})

		if got, want := limit.Burst-peek.Remaining, allowed[n].Load(); got != want {
			t.Errorf("subject %d: got %d spent; want %d, as were allowed", n, got, want)
		}
	}
}
