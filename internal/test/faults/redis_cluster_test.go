package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
)

// nodeTimeout is the cluster's.
const nodeTimeout = time.Second

// onCluster is a store opened by the addresses of all nodes.
func onCluster(t testing.TB, c *redistest.Cluster, cfg config) *rig {
	t.Helper()
	return rigAt(t, "redis://"+strings.Join(c.Addrs(), ","), cfg)
}

// onePerShard are subjects that live on the shards, in their order.
func onePerShard(t testing.TB, c *redistest.Cluster) (subjects []string) {
	t.Helper()
	for i := range shards(t, c) {
		subjects = append(subjects, subjectOn(t, c, i, "s"))
	}
	return subjects
}

// worksOn makes sure that the store answers for all the subjects.
func worksOn(t testing.TB, r *rig, subjects ...string) {
	t.Helper()
	for _, s := range subjects {
		redistest.Eventually(t, 2*ample, "the store to work for "+s, func() bool { return answersFor(r, s) })
	}
}

// withoutFullCoverage lets shards answer while another shard has no master. By
// default all of them answer CLUSTERDOWN then.
func withoutFullCoverage(t testing.TB, c *redistest.Cluster) {
	t.Helper()
	for _, node := range c.Nodes {
		do(t, node, "config", "set", "cluster-require-full-coverage", "no")
	}
	t.Cleanup(func() {
		mustHeal(t, healCluster(c))
		for _, node := range c.Nodes {
			do(t, node, "config", "set", "cluster-require-full-coverage", "yes")
		}
	})
}

// others takes from subjects that are not on shard 0 during f, and fails if calls
// fail. A single late reply means nothing on a busy machine.
func others(t *testing.T, o *outcome, r *rig, subjects []string, f func()) {
	t.Helper()
	var asked, failed, unavailable atomic.Int64
	var last atomic.Value
	stop := during(func() {
		for _, s := range subjects[1:] {
			asked.Add(1)
			if _, err := o.take(r, plenty(s)); errors.Is(err, redisstore.ErrUnavailable) {
				unavailable.Add(1)
			} else if err != nil {
				last.Store(err)
				failed.Add(1)
			}
		}

		time.Sleep(2 * time.Millisecond)
	})

	f()
	stop()
	if n := unavailable.Load(); n > 0 {
		t.Errorf("%d of %d calls to other shards were not even tried; want a breaker for each server", n, asked.Load())
	}
	if n := failed.Load(); n > 1+asked.Load()/100 {
		t.Errorf("%d of %d calls to other shards failed, as with %v; want none", n, asked.Load(), last.Load())
	}
}

func TestFault21ClusterMasterKilled(t *testing.T) {
	o := apart(t, "kill -9 of a master")
	c := theCluster(t)
	withoutFullCoverage(t, c)
	subjects := onePerShard(t, c)
	r := onCluster(t, c, config{Timeout: time.Second}) // for the other shards
	worksOn(t, r, subjects...)

	old := shards(t, c)[0].master
	others(t, o, r, subjects, func() {
		old.Kill()
		o.recoversWhen(t, nodeTimeout+probing, func() bool {
			start := time.Now()
			ok := answersFor(r, subjects[0])
			o.decided(time.Since(start))
			return ok
		})
	})

	if now := shards(t, c)[0].master; now == old {
		t.Error("the shard works without its master, and no replica was promoted")
	}
	o.inTime(t, r.Timeout)
}

// move migrates the keys of a slot, or some of them, to another master, as
// resharding does. Until done is called the slot is being moved.
func move(t testing.TB, c *redistest.Cluster, slot int, from, to *redistest.Server) (keys func(...string), done func()) {
	t.Helper()
	id := func(s *redistest.Server) any { return do(t, s, "cluster", "myid") }
	do(t, to, "cluster", "setslot", slot, "importing", id(from))
	do(t, from, "cluster", "setslot", slot, "migrating", id(to))

	host, port, _ := strings.Cut(to.Addr, ":")
	keys = func(names ...string) {
		for _, name := range names {
			do(t, from, "migrate", host, port, name, 0, 5000)
		}
	}

	done = func() {
		// Until the source gives up the slot, new keys may still appear on it.
		for {
			left, _ := do(t, from, "cluster", "getkeysinslot", slot, 100).([]any)
			if len(left) == 0 {
				break
			}
			for _, name := range left {
				keys(name.(string))
			}
		}

		for _, s := range []*redistest.Server{to, from} {
			do(t, s, "cluster", "setslot", slot, "node", id(to))
		}

		// A node that does not know the new owner's epoch could later claim the slot
		// with the same epoch.
		epoch := epochOf(t, to)
		redistest.Eventually(t, ample, "all nodes to know where the slot is", func() bool {
			for _, s := range c.Nodes {
				slots, err := slotsOf(s)
				if err != nil || epochOf(t, s) < epoch {
					return false
				}

				for _, r := range slots {
					if r.Start <= slot && slot <= r.End && r.Nodes[0].Addr != to.Addr {
						return false
					}
				}
			}

			return true
		})
	}

	return keys, done
}

// epochOf is the latest configuration epoch that a node of a cluster knows.
func epochOf(t testing.TB, node *redistest.Server) int {
	t.Helper()
	_, rest, _ := strings.Cut(node.Client().ClusterInfo(context.Background()).Val(), "cluster_current_epoch:")
	var epoch int
	if _, err := fmt.Sscan(rest, &epoch); err != nil {
		t.Fatalf("the epoch that %s knows: %v", node.Addr, err)
	}
	return epoch
}

// moveAll moves a slot with all its keys.
func moveAll(t testing.TB, c *redistest.Cluster, slot int, from, to *redistest.Server) {
	t.Helper()
	_, done := move(t, c, slot, from, to)
	done()
}

// Slots move under load without an error, also for requests of two policies whose keys are on two nodes for a while.
func TestFault22SlotsMoveUnderLoad(t *testing.T) {
	o := apart(t, "resharding: MOVED and ASK")
	c := theCluster(t)
	r := onCluster(t, c, config{Timeout: ample})
	from, to := shards(t, c)[0].master, shards(t, c)[1].master
	var subjects []string
	for i := range amount(6, 50) {
		subjects = append(subjects, subjectOn(t, c, 0, fmt.Sprint("moving", i, "-")))
	}
	worksOn(t, r, subjects...)

	const bucket = 100_000
	passed := make([]int64, len(subjects))
	stop := during(func() {
		redistest.Together(len(subjects), func(i int) {
			charges := []gcra.Charge{daily(subjects[i], bucket), daily(subjects[i], bucket)}
			charges[1].Policy = "q"
			start := time.Now()
			allowed, err := r.Take(t.Context(), charges[:1+i%2])
			o.decided(time.Since(start))

			if err != nil {
				t.Errorf("while slots move: %v", err)
			} else if allowed {
				passed[i]++
			}
		})
	})

	moved := make(map[int]bool)
	for _, s := range subjects {
		if slot := slotOf(t, c, s); !moved[slot] {
			moved[slot] = true
			keys, done := move(t, c, slot, from, to)
			keys(r.Prefix + "{" + s + "}:p")
			time.Sleep(10 * time.Millisecond) // as on a busy node
			done()
		}
	}

	time.Sleep(100 * time.Millisecond) // some load on the new masters
	stop()

	w := r.witness(t, c.Client())
	for i, s := range subjects {
		if got := spent(t, w, daily(s, bucket)); got > passed[i] || got < passed[i]-100 { // it refills a little
			t.Errorf("%s: %d units gone after %d allowed requests", s, got, passed[i])
		}
	}

	for slot := range moved {
		moveAll(t, c, slot, to, from)
	}
}

// While a slot is being moved, keys that have moved are asked for on the new master,
// which does not have the script.
func TestFault23MovingSlotWithoutTheScript(t *testing.T) {
	o := apart(t, "slot half moved, SCRIPT FLUSH on the target")
	c := theCluster(t)
	r := onCluster(t, c, config{Timeout: ample, DenialTTL: -1})
	from, to := shards(t, c)[0].master, shards(t, c)[1].master
	subject := subjectOn(t, c, 0, "half")
	gone, stays, fresh := daily(subject, 100), daily(subject, 100), daily(subject, 100)
	gone.Policy, stays.Policy, fresh.Policy = "gone", "stays", "fresh"
	worksOn(t, r, subject)
	mustTake(t, r, gone)
	mustTake(t, r, stays)
	keys, done := move(t, c, slotOf(t, c, subject), from, to)
	keys(r.Prefix + "{" + subject + "}:gone")

	for i := range int64(5) {
		do(t, to, "script", "flush")
		do(t, from, "script", "flush")

		for _, charge := range []gcra.Charge{gone, stays, fresh} {
			want := 98 - i
			if charge.Policy == "fresh" {
				want = 99 - i
			}
			if res, err := o.take(r, charge); err != nil || !res.Allowed || res.Remaining != want {
				t.Errorf("round %d, policy %s: got %+v, %v; want %d remaining", i, charge.Policy, res, err, want)
			}
		}
	}

	done()
	for _, charge := range []gcra.Charge{gone, stays, fresh} {
		redistest.Eventually(t, ample, "the slot's new master", func() bool {
			charge.Peek = true
			_, err := o.take(r, charge)
			return err == nil
		})
	}

	if n := spent(t, r, gone); n != 6 {
		t.Errorf("%d units are gone after 6 allowed requests", n)
	}
	moveAll(t, c, slotOf(t, c, subject), to, from)
}

// tryAgains is a hook that is called for each answer TRYAGAIN.
type tryAgains func()

func (f tryAgains) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f tryAgains) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		f.look(cmd)
		return err
	}
}

func (f tryAgains) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			f.look(cmd)
		}
		return err
	}
}

func (f tryAgains) look(cmd redis.Cmder) {
	if redis.IsTryAgainError(cmd.Err()) {
		f()
	}
}

// While a slot is being moved, the keys of a request may be on two nodes for a
// moment. The request is then sent again until they are on one, without an error.
func TestFault99KeysOfOneRequestOnTwoNodesForAMoment(t *testing.T) {
	o := apart(t, "two keys of one request, one of them moved, the other a moment later")
	c := theCluster(t)
	from, to := shards(t, c)[0].master, shards(t, c)[1].master
	subject := subjectOn(t, c, 0, "torn")
	other := subjectOn(t, c, 0, "whole")
	for prefix, newStore := range map[string]func(redis.UniversalClient) gcra.Store{
		"rl:": func(client redis.UniversalClient) gcra.Store {
			return storeOn(t, client, config{Timeout: ample, DenialTTL: -1})
		},
		"sl:": func(client redis.UniversalClient) gcra.Store {
			r, err := slidinglog.New(client, slidinglog.Config{Timeout: ample})
			if err != nil {
				t.Fatal(err)
			}
			return r
		},
	} {
		options := c.Options()
		options.ReadTimeout = ample
		client := closing(t, redis.NewClusterClient(options))
		store := newStore(client)

		var second func()
		var torn atomic.Int64
		var most int64 // answers TRYAGAIN
		client.AddHook(tryAgains(func() {
			if torn.Add(1) == most {
				second()
			}
		}))

		works(t, store)
		const rounds = 5
		charges := []gcra.Charge{daily(subject, 100), daily(subject, 100), daily(other, 100)}
		charges[0].Policy, charges[1].Policy = "left", "right"
		mustTake(t, store, charges...)

		for i := range rounds {
			keys, done := move(t, c, slotOf(t, c, subject), from, to)
			keys(prefix + "{" + subject + "}:left")
			second = func() { keys(prefix + "{" + subject + "}:right") }
			torn.Store(0)
			most = int64(1 + i)
			n := 2 + i%2 // with and without a subject that stays, which may be in the same batch
			if _, err := store.Take(t.Context(), charges[:n]); err != nil {
				t.Errorf("%s round %d: got %v; want an answer", prefix, i, err)
			}
			if torn.Load() != most {
				t.Errorf("%s round %d: Redis answered TRYAGAIN %d times; want %d", prefix, i, torn.Load(), most)
			}
			o.requests.Add(1)
			done()
			moveAll(t, c, slotOf(t, c, subject), to, from)
			redistest.Eventually(t, ample, "the request at its old master", func() bool {
				_, err := store.Take(t.Context(), []gcra.Charge{peek(charges[0]), peek(charges[1])})
				return err == nil
			})
		}

		for _, charge := range charges[:2] {
			if n := spent(t, store, charge); n != 1+rounds {
				t.Errorf("%s: %d units are gone after %d allowed requests", prefix, n, 1+rounds)
			}
		}
	}
}

// peek is the charge without its cost.
func peek(c gcra.Charge) gcra.Charge {
	c.Peek = true
	return c
}

// A request whose keys stay on two nodes cannot be decided. It is not charged in
// part, and does not count as an outage of the server. Requests that share a script
// with it are decided.
func TestFault24KeysOfOneRequestOnTwoNodes(t *testing.T) {
	o := apart(t, "two keys of one request, one of them moved: TRYAGAIN")
	c := theCluster(t)
	var torn atomic.Int64
	client := closing(t, redis.NewClusterClient(c.Options()))
	client.AddHook(tryAgains(func() { torn.Add(1) }))
	r := rigOn(t, client, config{Timeout: 3 * time.Second, DenialTTL: -1}) // the last pause is a third: a busy machine answers in that
	from, to := shards(t, c)[0].master, shards(t, c)[1].master
	subject := subjectOn(t, c, 0, "torn")
	charges := []gcra.Charge{daily(subject, 100), daily(subject, 100)}
	charges[0].Policy, charges[1].Policy = "left", "right"
	worksOn(t, r, subject)
	mustTake(t, r, charges...)
	keys, done := move(t, c, slotOf(t, c, subject), from, to)
	keys(r.Prefix + "{" + subject + "}:left")
	var whole []string
	for i := range 4 {
		whole = append(whole, subjectOn(t, c, 0, fmt.Sprint("whole", i, "-")))
	}

	stop := during(func() {
		redistest.Together(len(whole), func(i int) {
			if _, err := o.take(r, plenty(whole[i])); err != nil {
				t.Errorf("a request with its keys on one node: %v", err)
			}
		})
	})

	for range 4 {
		start := time.Now()
		_, err := r.Take(t.Context(), charges)
		o.decided(time.Since(start))
		if err == nil || !strings.Contains(err.Error(), "TRYAGAIN") {
			t.Errorf("with one of two keys moved: got %v; want TRYAGAIN", err)
		}
	}

	stop()
	if n := torn.Load(); n > 60 {
		t.Errorf("4 requests were answered %d times in three seconds each; want growing pauses in between", n)
	}
	if n := len(r.log.Lines(isAway)); n != 0 {
		t.Error("keys on two nodes counted as an outage of the server")
	}
	done()
	redistest.Eventually(t, ample, "the request at its new master", func() bool { _, err := r.Take(t.Context(), charges); return err == nil })
	w := r.witness(t, c.Client())
	if left, right := spent(t, w, charges[0]), spent(t, w, charges[1]); left != 2 || right != 2 {
		t.Errorf("after two requests %d units of one limit are gone and %d of the other; want 2 and 2", left, right)
	}

	moveAll(t, c, slotOf(t, c, subject), to, from)
	o.inTime(t, r.Timeout)
}

// A cluster that lacks a slot serves none.
func TestFault26ClusterDown(t *testing.T) {
	o := apart(t, "master and replica of a shard killed, restarted")
	c := theCluster(t)
	subjects := onePerShard(t, c)
	r := onCluster(t, c, config{})
	worksOn(t, r, subjects...)
	lost := wholeShards(t, c)[0]
	lost.replica.Kill()
	lost.master.Kill()
	redistest.Eventually(t, ample, "the other shards to say that the cluster is down", func() bool {
		_, err := o.take(r, plenty(subjects[1]))
		return err != nil && strings.Contains(err.Error(), "CLUSTERDOWN")
	})

	redistest.Eventually(t, ample, "the store to leave them alone", func() bool {
		_, err := o.take(r, plenty(subjects[1]))
		return errors.Is(err, redisstore.ErrUnavailable)
	})

	lost.master.Restart()
	lost.replica.Restart()
	mustHeal(t, healCluster(c))
	for _, s := range subjects {
		o.recoversWhen(t, probing, func() bool { return answersFor(r, s) })
	}
	o.inTime(t, budget)
}

// Each server has a breaker and a queue of its own.
func TestFault27OneShardStandsStill(t *testing.T) {
	o := apart(t, "SIGSTOP of a master, failover, SIGCONT")
	c := theCluster(t)
	withoutFullCoverage(t, c)
	subjects := onePerShard(t, c)
	r := onCluster(t, c, config{Timeout: time.Second})
	worksOn(t, r, subjects...)

	old := shards(t, c)[0].master
	others(t, o, r, subjects, func() {
		old.Pause()
		var wg sync.WaitGroup
		for range 20 { // callers that get no answer from the shard
			wg.Go(func() { _, _ = o.take(r, plenty(subjects[0])) })
		}
		o.recoversWhen(t, nodeTimeout+probing, func() bool { return answersFor(r, subjects[0]) })
		wg.Wait()
		old.Resume()
		time.Sleep(phase(200*time.Millisecond, 5*time.Second))
	})

	o.inTime(t, r.Timeout)
}
