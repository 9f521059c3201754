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
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// On a cluster one script decides for all subjects of a node, or one for each
// subject where the server runs no such script.
func TestOneScriptForEachNode(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"plain": nil, "without GET": {"--rename-command", "GET", ""}} {
		t.Run(name, func(t *testing.T) {
			cluster := redistest.StartCluster(t, args...)
			log := new(diagtest.Text)
			r := openStore(t, "redis://"+strings.Join(cluster.Addrs(), ","), config{Timeout: patience, DenialTTL: -1, Logger: log.Logger()})
			exactlyTwenty(t, 0, r)

			var scripts, failed int64
			masters := cluster.Nodes[:3]
			for _, node := range masters {
				redistest.ResetStats(t, node.Client())
			}
			const callers, calls = 400, 20
			redistest.Together(callers, func(caller int) {
				for range calls {
					if _, err := gcra.Take(t.Context(), r, hourly(fmt.Sprint("many ", caller), calls)); err != nil {
						t.Error(err)
					}
				}
			})
			for _, node := range masters {
				scripts += redistest.Calls(t, node.Client(), "evalsha") + redistest.Calls(t, node.Client(), "eval")
				failed += int64(redistest.Stat(t, node.Client(), "errorstats", "errorstat_ERR:count="))
			}

			// More than batches of several subjects need, and less than one script for each subject of a batch.
			const few = callers * calls / 4
			switch {
			case runsFlags(t, cluster.Nodes[0]) && scripts > few:
				t.Errorf("got %d scripts; want one for all that wait, at most %d", scripts, few)
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
		want string
		hook answerHook
	}{
		"a proxy loses the node after the script": {want: "upstream connection failure", hook: func(keys string) error {
			if strings.Count(keys, " ") > 1 {
				return errorReply("ERR upstream connection failure")
			}
			return nil
		}},
		"the user may write some keys only": {user: "limiter", want: "some keys are written", hook: func(string) error { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config{Prefix: newPrefix(), Logger: quiet}
			o := cluster.Options()
			o.ReadTimeout = patience
			if tt.user != "" {
				o.Username, o.Password = tt.user, "hunter2"
				for _, node := range cluster.Nodes {
					do(t, node, fmt.Sprintf("acl setuser %s on >hunter2 +@all ~%s*:p %%R~%[2]s*:read", tt.user, cfg.Prefix))
				}
			}
			client := redis.NewClusterClient(o)
			t.Cleanup(func() { client.Close() })
			client.OnNewNode(func(node *redis.Client) { node.AddHook(tt.hook) })
			r, own := newStore(t, client, cfg), newStore(t, cluster.Client(), cfg)
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
