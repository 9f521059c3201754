package histories

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// A cluster loses a master in the second round, and with it what its replica does not
// have yet.
type cluster struct {
	t testing.TB
	*redistest.Cluster

	failover operation // that has begun
	hit      []string  // its subjects
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	return &cluster{t: t, Cluster: redistest.StartCluster(t)}
}

func (c *cluster) url() string { return "redis://" + strings.Join(c.Addrs(), ",") }

// serversOf are the master and the replica of a subject's keys.
func (c *cluster) serversOf(subject string) (master, replica *redistest.Server) {
	c.t.Helper()
	ctx := context.Background()
	slot, err := c.Client().ClusterKeySlot(ctx, subject).Result()
	if err != nil {
		c.t.Fatal(err)
	}

	slots := redis.NewClusterSlotsCmd(ctx, "cluster", "slots")
	if err := c.Client().Process(ctx, slots); err != nil {
		c.t.Fatal(err)
	}

	for _, s := range slots.Val() {
		if s.Start <= int(slot) && int(slot) <= s.End {
			for i, n := range s.Nodes {
				server := c.Nodes[slices.Index(c.Addrs(), n.Addr)]
				if i == 0 {
					master = server
				} else {
					replica = server
				}
			}
		}
	}

	return master, replica
}

// disturb kills the master of a subject in the second round. Before, its replica hangs
// and loses the link, so what the master has allowed since is lost.
func (c *cluster) disturb(round int) string {
	c.t.Helper()
	if round != 1 {
		return ""
	}
	time.Sleep(20*time.Millisecond + rand.N(50*time.Millisecond))

	master, replica := c.serversOf(subject(rand.IntN(subjects)))
	for i := range subjects {
		if m, _ := c.serversOf(subject(i)); m == master {
			c.hit = append(c.hit, subject(i))
		}
	}

	replica.Pause()
	if err := master.Client().ClientKillByFilter(context.Background(), "TYPE", "replica").Err(); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(rand.N(100 * time.Millisecond))
	c.failover = operation{Kind: rollback, Call: ticksAt(time.Now())}
	master.Kill()
	replica.Resume()
	return "failover"
}

// quiet waits until the replicas are up to date, or have taken over.
func (c *cluster) quiet() (at int64, happened []operation) {
	c.t.Helper()
	store, err := redisstore.Open(c.url(), redisstore.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		c.t.Fatal(err)
	}
	defer store.Close()

	for i := range subjects {
		redistest.Eventually(c.t, patience, "the cluster to answer", func() bool {
			_, err := gcra.Peek(c.t.Context(), store, gcra.Charge{Subject: subject(i), Policy: policyList[0].Name, Limit: policyList[0].Limit})
			return err == nil
		})
	}

	at = ticksAt(time.Now())
	for _, s := range c.hit {
		c.failover.Return, c.failover.Charges = at, []gcra.Charge{{Subject: s}}
		happened = append(happened, c.failover)
	}

	c.hit = nil
	for _, node := range c.Nodes {
		if node.PID() != 0 {
			settled(c.t, node.Client())
		}
	}

	at = ticksAt(time.Now())
	if c.failover.Kind == "" { // every master has its replica
		for i := range subjects {
			master, _ := c.serversOf(subject(i))
			master.AwaitReplicas(1)
		}
		happened = append(happened, toAll(operation{Kind: synced, Call: at, Return: ticksAt(time.Now())})...)
	}

	return at, happened
}
