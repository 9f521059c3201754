package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// On a cluster no call waits for a dial.
func TestClusterIsDialledAhead(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	url := "redis://" + strings.Join(cluster.Addrs(), ",")
	masters := cluster.Nodes[:3]

	t.Run("Open dials the masters before the first call", func(t *testing.T) {
		openStore(t, url, config{})
		for _, node := range masters {
			redistest.Eventually(t, patience, "two spare connections to each master", func() bool {
				// go-redis sends nothing on a spare connection.
				return strings.Count(node.Client().ClientList(t.Context()).Val(), " cmd=NULL ") >= 2
			})
		}
	})

	// Scripts for several subjects are a pipeline, EVALSHA and then EVAL.
	t.Run("batches use the spare connections", func(t *testing.T) {
		o, err := redisstore.ClientOptions(url)
		if err != nil {
			t.Fatal(err)
		}

		var silent atomic.Bool // dials hang until the test ends
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if silent.Load() {
				<-t.Context().Done()
				conn, _ := net.Pipe()
				return conn, conn.Close() // not an error: go-redis would log it, perhaps in a test that counts lines
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}

		o.DialTimeout = patience
		client := redis.NewUniversalClient(o).(*redis.ClusterClient)
		t.Cleanup(func() { client.Close() })
		r := storeOn(t, client, config{Timeout: patience})
		gcratest.MustTake(t, r, hourly("s", 10)) // the store learns the slots of the servers

		for _, node := range masters {
			if err := node.Client().ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}

		redistest.Eventually(t, patience, "two spare connections to each master", func() bool {
			return client.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
				if n := node.PoolStats().TotalConns; n < 2 { // IdleConns counts dials under way
					return fmt.Errorf("%d connections", n)
				}
				return nil
			}) == nil
		})

		silent.Store(true)

		for call := range 10 {
			var charges []gcra.Charge
			for i := range 12 {
				charges = append(charges, hourly(fmt.Sprint(call, " ", i), 10))
			}
			if _, err := r.Take(t.Context(), charges); err != nil {
				t.Fatalf("call %d: %v", call, err)
			}
		}

		for _, node := range cluster.Nodes {
			if n := redistest.Calls(t, node.Client(), "command"); n != 0 {
				t.Errorf("%s: got %d COMMAND; want none: its reply is long", node.Addr, n)
			}
		}
	})
}
