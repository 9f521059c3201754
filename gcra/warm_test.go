package gcra_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// A cluster's batches use the connections that were dialled ahead, also those
// with scripts for several subjects and those that must send the script's text:
// no call waits for a dial.
func TestNoBatchDials(t *testing.T) {
	cluster := redistest.StartCluster(t)
	o, err := gcra.Options("redis://" + strings.Join(cluster.Addrs(), ","))
	if err != nil {
		t.Fatal(err)
	}
	var silent atomic.Bool // dials hang, as on a network that drops packets
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if silent.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	o.DialTimeout = patience
	client := redis.NewUniversalClient(o).(*redis.ClusterClient)
	t.Cleanup(func() { client.Close() })
	redistest.Eventually(t, patience, "two spare connections to each master", func() bool {
		return client.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
			if n := node.PoolStats().TotalConns; n < 2 { // IdleConns counts dials under way
				return fmt.Errorf("%d spare connections", n)
			}
			return nil
		}) == nil
	})
	silent.Store(true)

	r := gcra.NewRedis(client)
	r.Timeout = patience / 4
	for call := range 10 {
		var charges []gcra.Charge
		for i := range 12 {
			charges = append(charges, hourly(fmt.Sprint(call, " ", i), 10))
		}
		if err := r.Take(t.Context(), charges); err != nil {
			t.Fatalf("call %d: %v", call, err)
		}
	}
	for _, node := range cluster.Nodes {
		if n := calls(t, node.Client(), "command"); n != 0 {
			t.Errorf("%s: got %d COMMAND; want none, the first call waits for its long reply", node.Addr, n)
		}
	}
}

// Open dials the nodes of a cluster before the first call.
func TestOpenDialsTheClusterAhead(t *testing.T) {
	cluster := redistest.StartCluster(t)
	clients := func(node *redistest.Server) (n int) {
		list := node.Client().ClientList(context.Background()).Val()
		for line := range strings.Lines(list) {
			// go-redis sends nothing on a spare connection.
			if strings.Contains(line, " flags=N ") && strings.Contains(line, " cmd=NULL ") {
				n++
			}
		}
		return n
	}
	r, err := gcra.Open("redis://" + strings.Join(cluster.Addrs(), ","))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	for _, node := range cluster.Nodes[:3] {
		redistest.Eventually(t, patience, "two spare connections to each master", func() bool { return clients(node) >= 2 })
	}
}
