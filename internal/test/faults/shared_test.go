package faults

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// A cluster and a Sentinel group take seconds to form. Tests share one of each,
// started when the first test asks, and leave it as they found it. If one does
// not recover from a test, the next test starts another.
var (
	sharedCluster  shared[redistest.Cluster]
	sharedSentinel shared[redistest.Sentinel]
)

// shared servers outlive the test that starts them. They are given shared as their
// testing.TB, so that what goes wrong fails the test that has them.
type shared[T any] struct {
	testing.TB            // the test that has the servers
	turn       sync.Mutex // which the test holds
	servers    *T

	mu       sync.Mutex // servers start in goroutines of their own
	cleanups []func()
}

// lend gives the servers to one test after the other.
func (s *shared[T]) lend(t testing.TB, start func(testing.TB) *T, heal func(*T) bool) *T {
	t.Helper()
	redistest.Need(t)
	s.turn.Lock()
	t.Cleanup(s.turn.Unlock) // the last cleanup
	s.TB = t
	if s.servers == nil {
		s.servers = start(s)
	}

	all := s.servers
	t.Cleanup(func() {
		if !heal(all) {
			t.Log("the servers are not healthy; the next test starts others")
			s.servers = nil
		}
	})

	return all
}

// Cleanup calls f when all tests have ended.
func (s *shared[T]) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *shared[T]) stop() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

// theCluster is the cluster that tests share.
func theCluster(t testing.TB) *redistest.Cluster {
	t.Helper()
	return sharedCluster.lend(t, func(t testing.TB) *redistest.Cluster { return redistest.StartCluster(t) }, healCluster)
}

// healCluster starts every node that is down, and waits until all agree that three
// masters, each with a replica, serve all slots. It reports false if that takes too
// long.
func healCluster(c *redistest.Cluster) bool {
	for _, node := range c.Nodes {
		if node.PID() == 0 {
			node.Restart()
		}
	}
	return soon(func() bool {
		for _, node := range c.Nodes {
			if !healthy(node) {
				return false
			}
		}
		return true
	})
}

// mustHeal is for tests that go on with the servers.
func mustHeal(t testing.TB, healed bool) {
	t.Helper()
	if !healed {
		t.Fatalf("the servers are not healthy after %v", 2*ample)
	}
}

// soon asks cond until it is true, and reports false when that takes too long.
func soon(cond func() bool) bool {
	for deadline := time.Now().Add(2 * ample); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func healthy(node *redistest.Server) bool {
	ctx := context.Background()
	info, err := node.Client().ClusterInfo(ctx).Result()
	if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_slots_ok:16384") {
		return false
	}
	list, err := node.Client().ClusterNodes(ctx).Result()
	if err != nil || strings.Contains(list, "fail") || strings.Contains(list, "disconnected") || strings.Count(list, "slave") != 3 {
		return false
	}
	repl, err := node.Client().Info(ctx, "replication").Result()
	return err == nil && (strings.Contains(repl, "role:master") && strings.Contains(repl, "connected_slaves:1") ||
		strings.Contains(repl, "master_link_status:up"))
}

// shard is a master of the cluster and its replica, as they are now.
type shard struct{ master, replica *redistest.Server }

// slotsOf are the slots and their servers, as a node knows them.
func slotsOf(node *redistest.Server) ([]redis.ClusterSlot, error) {
	cmd := redis.NewClusterSlotsCmd(context.Background(), "cluster", "slots")
	_ = node.Client().Process(context.Background(), cmd) // the command keeps its error
	return cmd.Result()
}

// shards returns the cluster's shards in the order of their slots.
func shards(t testing.TB, c *redistest.Cluster) []shard {
	t.Helper()
	var all []shard
	for _, node := range c.Nodes {
		slots, err := slotsOf(node)
		if err != nil {
			continue
		}

		slices.SortFunc(slots, func(a, b redis.ClusterSlot) int { return a.Start - b.Start })
		for _, s := range slots {
			var sh shard
			for i, n := range s.Nodes {
				at := slices.IndexFunc(c.Nodes, func(s *redistest.Server) bool { return s.Addr == n.Addr })
				if i == 0 {
					sh.master = c.Nodes[at]
				} else {
					sh.replica = c.Nodes[at]
				}
			}

			if !slices.Contains(all, sh) {
				all = append(all, sh)
			}
		}

		return all
	}

	t.Fatal("no node of the cluster returns its slots")
	return nil
}

// wholeShards waits until every shard has a replica: nodes omit a replica that did
// not answer for a second, as happens on a busy machine.
func wholeShards(t testing.TB, c *redistest.Cluster) (all []shard) {
	t.Helper()
	redistest.Eventually(t, ample, "every shard to have a replica", func() bool {
		all = shards(t, c)
		return !slices.ContainsFunc(all, func(s shard) bool { return s.replica == nil })
	})
	return all
}

// slotOf is the slot of a subject's keys.
func slotOf(t testing.TB, c *redistest.Cluster, subject string) int {
	t.Helper()
	for _, node := range c.Nodes {
		if slot, err := node.Client().ClusterKeySlot(context.Background(), subject).Result(); err == nil {
			return int(slot)
		}
	}
	t.Fatal("no node of the cluster answers")
	return 0
}

// subjectOn is a subject with the given beginning that lives on a shard.
func subjectOn(t testing.TB, c *redistest.Cluster, n int, name string) string {
	t.Helper()
	master := shards(t, c)[n].master
	for i := range 1000 {
		subject := fmt.Sprint(name, i)
		if masterOf(t, c, subject) == master {
			return subject
		}
	}
	t.Fatalf("no subject %s... lives on %s", name, master.Addr)
	return ""
}

// masterOf is the server that a subject's keys live on.
func masterOf(t testing.TB, c *redistest.Cluster, subject string) *redistest.Server {
	t.Helper()
	slot := slotOf(t, c, subject)
	for _, node := range c.Nodes {
		slots, err := slotsOf(node)
		if err != nil {
			continue
		}
		for _, s := range slots {
			if s.Start <= slot && slot <= s.End {
				return c.Nodes[slices.IndexFunc(c.Nodes, func(n *redistest.Server) bool { return n.Addr == s.Nodes[0].Addr })]
			}
		}
	}
	t.Fatalf("no node serves slot %d", slot)
	return nil
}

// theSentinels is the Sentinel group that tests share.
func theSentinels(t testing.TB) *redistest.Sentinel {
	t.Helper()
	return sharedSentinel.lend(t, func(t testing.TB) *redistest.Sentinel { return redistest.StartSentinel(t) },
		func(s *redistest.Sentinel) bool { return healSentinels(t, s) })
}

// healSentinels starts every server that is down, has all follow the master that the
// sentinels name, and waits until every sentinel sees that. By themselves the
// sentinels would take some 20 s. It reports false if that takes too long.
func healSentinels(t testing.TB, s *redistest.Sentinel) bool {
	t.Helper()
	for _, server := range append(slices.Clone(s.Servers), s.Sentinels...) {
		if server.PID() == 0 {
			server.Restart()
		}
	}

	s.Hurry()
	defer s.DoNotHurry()

	return soon(func() bool {
		master := s.Master()
		host, port, _ := net.SplitHostPort(master.Addr)

		// A command in the middle of a failover would undo it, and may leave two servers that
		// follow each other: the sentinels cannot end that.
		for _, server := range s.Sentinels {
			if !decided(server, s, port) {
				return false
			}
		}

		for _, server := range s.Servers {
			if !follows(server, master, host, port) {
				return false
			}
		}

		for _, server := range s.Sentinels {
			if !agrees(server, s, port) {
				return false
			}
		}

		return true
	})
}

// follows reports whether a server has the role that the sentinels gave it, and asks for it
// if not: a master has two replicas, and another server follows it.
func follows(server, master *redistest.Server, host, port string) bool {
	ctx := context.Background()
	repl, err := server.Client().Info(ctx, "replication").Result()
	switch {
	case err != nil:
		return false
	case server != master && !strings.Contains(repl, "master_port:"+port):
		_ = server.Client().ReplicaOf(ctx, host, port).Err() // asked again until it holds
		return false
	case server != master:
		return strings.Contains(repl, "master_link_status:up")
	case !strings.Contains(repl, "role:master"):
		_ = server.Client().ReplicaOf(ctx, "no", "one").Err()
		return false
	}
	return strings.Contains(repl, "connected_slaves:2")
}

// decided reports whether a sentinel names the master on that port, and is not about to
// choose another.
func decided(server *redistest.Server, s *redistest.Sentinel, port string) bool {
	c := redis.NewSentinelClient(server.Options())
	defer c.Close()
	m, err := c.Master(context.Background(), s.MasterName).Result()
	return err == nil && m["port"] == port && !strings.Contains(m["flags"], "failover_in_progress")
}

// agrees reports whether a sentinel sees the master on that port, up, with two
// replicas that follow it.
func agrees(server *redistest.Server, s *redistest.Sentinel, port string) bool {
	ctx := context.Background()
	c := redis.NewSentinelClient(server.Options())
	defer c.Close()
	m, err := c.Master(ctx, s.MasterName).Result()
	if err != nil || m["port"] != port || m["flags"] != "master" {
		return false
	}

	replicas, err := c.Replicas(ctx, s.MasterName).Result()
	if err != nil {
		return false
	}

	good := 0
	for _, r := range replicas {
		if r["flags"] == "slave" && r["master-port"] == port && r["master-link-status"] == "ok" {
			good++
		}
	}

	return good == len(s.Servers)-1
}
