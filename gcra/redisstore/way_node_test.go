package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

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

// runsFlags reports whether a server runs scripts with flags: Redis 7.0 and newer.
func runsFlags(t *testing.T, s *redistest.Server) bool {
	t.Helper()
	return s.Client().Eval(t.Context(), "#!lua flags=allow-cross-slot-keys\nreturn 1", nil).Err() == nil
}

// An errorReply is an error that a server answers.
type errorReply string

func (e errorReply) Error() string { return string(e) }
func (errorReply) RedisError()     {}

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
