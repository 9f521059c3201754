package redistest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// formation is how long a group of servers may take to form. It takes some three
// seconds; the rest is for busy machines.
const formation = 60 * time.Second

const (
	masters  = 3
	nodes    = 2 * masters
	slots    = 16384
	nodeTime = "1000" // ms until a node without an answer counts as failing
)

// Cluster is a Redis Cluster of three masters, each with a replica.
type Cluster struct {
	// Nodes starts with the masters, in the order of their slots; Nodes[3+i] is
	// the replica of Nodes[i]. The order does not follow a failover.
	Nodes []*Server

	t          testing.TB
	clientOnce sync.Once
	client     *redis.ClusterClient
}

// StartCluster runs six servers with a node timeout of one second and forms a
// cluster of them. When it returns, every node considers the cluster healthy and
// knows all others, and every replica follows its master. Args go to every
// node (see [Start]).
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	return startCluster(t, nil, args)
}

func startCluster(t testing.TB, certs *Certificates, args []string) *Cluster {
	t.Helper()
	Need(t)

	args = slices.Concat([]string{
		"--cluster-enabled", "yes",
		"--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", nodeTime,
		"--cluster-announce-ip", "127.0.0.1",
		"--cluster-replica-no-failover", "yes",
	}, replicating(args))

	for attempt := 1; ; attempt++ {
		c, err := tryCluster(t, certs, args)
		if err == nil {
			return c
		}
		if !errors.Is(err, errPortTaken) || attempt == 10 {
			t.Fatalf("the cluster did not form: %v", err)
		}
	}
}

// tryCluster boots nodes that know each other from the start. Nodes that meet forget those that do not answer in time, so on
// a busy machine they may not all meet.
func tryCluster(t testing.TB, certs *Certificates, args []string) (*Cluster, error) {
	ids, all := make([]string, nodes), make([]options, nodes)
	for i := range all {
		port, err := freePort(true)
		if err != nil {
			return nil, err
		}
		ids[i] = fmt.Sprintf("%020x%020x", rand.Uint64(), rand.Uint64())
		all[i] = options{args: args, port: port, certs: certs}
	}

	for i := range all {
		all[i].nodes = nodesFile(ids, all, i)
	}
	servers, err := bootAll(t, all...)
	if err != nil {
		return nil, err
	}

	c := &Cluster{Nodes: servers, t: t}
	ctx, cancel := context.WithTimeout(context.Background(), formation)
	defer cancel()
	for i, s := range c.Nodes {
		if err := poll(formation, func() error { return c.healthy(ctx, i, ids) }); err != nil {
			return nil, s.explain(err)
		}
	}

	// Not before: on a busy machine a node that boots may seem to fail, and its replica would take its place for good.
	for _, s := range c.Nodes {
		s.args = append(s.args, "--cluster-replica-no-failover", "no") // of a restart
		if err := s.Client().ConfigSet(ctx, "cluster-replica-no-failover", "no").Err(); err != nil {
			return nil, s.explain(err)
		}
	}
	return c, nil
}

// nodesFile is the nodes.conf of node i, in the form of CLUSTER NODES, see healthyNodes. With different epochs the nodes need
// not agree on which is newer.
func nodesFile(ids []string, all []options, i int) string {
	var b strings.Builder
	for j, o := range all {
		role, master, held := "master", "-", fmt.Sprintf("%d-%d", j*slots/masters, (j+1)*slots/masters-1)
		if j >= masters {
			role, master, held = "slave", ids[j-masters], ""
		}
		if j == i {
			role = "myself," + role
		}
		fmt.Fprintf(&b, "%s 127.0.0.1:%d@%d %s %s 0 0 %d connected %s\n", ids[j], o.port, o.port+busDistance, role, master, j%masters+1, held)
	}
	fmt.Fprintf(&b, "vars currentEpoch %d lastVoteEpoch 0\n", masters)
	return b.String()
}

// healthy returns nil if node i sees the cluster as it should be.
func (c *Cluster) healthy(ctx context.Context, i int, ids []string) error {
	client := c.Nodes[i].Client()
	info, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	if state := field(info, "cluster_state"); state != "ok" {
		return fmt.Errorf("cluster_state is %q", state)
	}
	list, err := client.ClusterNodes(ctx).Result()
	if err != nil {
		return err
	}
	if err := healthyNodes(list, ids); err != nil {
		return err
	}
	repl, err := client.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}

	if i < masters {
		if s := field(repl, "slave0"); !strings.Contains(s, "state=online") {
			return fmt.Errorf("its replica is %q", s)
		}
		return nil
	}

	if s := field(repl, "master_link_status"); s != "up" {
		return fmt.Errorf("the link to its master is %q", s)
	}
	return nil
}

// healthyNodes checks a reply of CLUSTER NODES, whose lines read
// "id address flags master ping pong epoch link slots".
func healthyNodes(list string, ids []string) error {
	seen := 0
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 8 {
			return fmt.Errorf("a line of CLUSTER NODES is %q", line)
		}

		i := slices.Index(ids, f[0])
		role, master := "master", "-"
		if i >= masters {
			role, master = "slave", ids[i-masters]
		}
		flags := strings.NewReplacer("myself,", "", ",nofailover", "").Replace(f[2])
		if i < 0 || flags != role || f[3] != master || f[7] != "connected" {
			return fmt.Errorf("a node is seen as %q", strings.TrimSpace(line))
		}
		if i < masters && len(f) < 9 {
			return errors.New("a master is seen without slots")
		}
		seen++
	}

	if seen != len(ids) {
		return fmt.Errorf("%d of %d nodes are known", seen, len(ids))
	}
	return nil
}

// Addrs are the addresses of all nodes, in the order of Nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, s := range c.Nodes {
		addrs[i] = s.Addr
	}
	return addrs
}

// Options returns the options of [Cluster.Client]: go-redis's defaults, with maintenance
// notifications off. Change them for a client of your own.
func (c *Cluster) Options() *redis.ClusterOptions {
	node := c.Nodes[0].Options()
	return &redis.ClusterOptions{
		Addrs:                    c.Addrs(),
		Password:                 node.Password,
		Protocol:                 node.Protocol,
		TLSConfig:                node.TLSConfig,
		MaintNotificationsConfig: noMaintenance(),
	}
}

// Client is a client of the cluster, always the same one, closed at cleanup.
func (c *Cluster) Client() *redis.ClusterClient {
	c.clientOnce.Do(func() {
		c.client = redis.NewClusterClient(c.Options())
		closeAtCleanup(c.t, c.client)
	})
	return c.client
}
