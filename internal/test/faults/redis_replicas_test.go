package faults

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/overrides"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Replicas lag, so scripts go to the master even if the client reads from replicas. Overrides are read there too: the cursors
// of one node mean nothing to another.
func TestFault94ReplicasAreNeverAsked(t *testing.T) {
	o := apart(t, "clients that read from replicas")
	c := theCluster(t)
	all := wholeShards(t, c)
	for _, s := range all {
		redistest.ResetStats(t, s.replica.Client())
		redistest.ResetStats(t, s.master.Client())
	}

	const many = 2000
	key, entries := overrides.Key("replicas:"), []any{overrides.Version, "1"}
	for i := range many {
		entries = append(entries, fmt.Sprintf("{%d}:%%", i), "x")
	}
	if err := c.Client().HSet(t.Context(), key, entries...).Err(); err != nil {
		t.Fatal(err)
	}
	oneTrip := func(ctx context.Context, f func(context.Context) error) error { return f(ctx) }

	for name, set := range map[string]func(*redis.ClusterOptions){
		"ReadOnly":       func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"RouteByLatency": func(o *redis.ClusterOptions) { o.RouteByLatency = true },
		"RouteRandomly":  func(o *redis.ClusterOptions) { o.RouteRandomly = true },
	} {
		options := c.Options()
		options.ReadTimeout = ample
		set(options)

		client := closing(t, clusterClient(options))
		r := rigOn(t, client, config{Timeout: ample})
		redistest.Together(60, func(i int) { // pipelines too
			if _, err := o.take(r, daily(fmt.Sprint("user", i%20), 2)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		if all, _, err := overrides.Read(t.Context(), client, key, "", many, oneTrip); len(all) != many || err != nil {
			t.Errorf("%s: got %d overrides, %v; want %d", name, len(all), err, many)
		}
	}

	var masters int64
	for _, s := range all {
		masters += redistest.Calls(t, s.master.Client(), "evalsha") + redistest.Calls(t, s.master.Client(), "eval")
		if n := redistest.Calls(t, s.replica.Client(), "evalsha") + redistest.Calls(t, s.replica.Client(), "eval"); n != 0 {
			t.Errorf("the replica %s was sent %d scripts; want none", s.replica.Addr, n)
		}
	}

	if masters == 0 {
		t.Error("no master was sent a script")
	}
}

// clusterClient dials no node before go-redis has set up the node's client. With
// RouteByLatency, go-redis 9.23.0 starts to ping a node before that: in
// newClusterNodeWithNodeAddress, before the functions of OnNewNode run. That is a data race
// within go-redis.
func clusterClient(options *redis.ClusterOptions) *redis.ClusterClient {
	var ready sync.Map // *redis.Client to a channel that is closed once the client is set up
	options.NewClient = func(o *redis.Options) *redis.Client {
		isReady := make(chan struct{})
		dial := redis.NewDialer(o)
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			select {
			case <-isReady:
				return dial(ctx, network, addr)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}

		client := redis.NewClient(o)
		ready.Store(client, isReady)
		return client
	}

	cluster := redis.NewClusterClient(options)
	cluster.OnNewNode(func(client *redis.Client) { // runs after NewClusterClient's
		if isReady, ok := ready.LoadAndDelete(client); ok {
			close(isReady.(chan struct{}))
		}
	})

	return cluster
}
