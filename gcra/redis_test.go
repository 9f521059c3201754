package gcra_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/storetest"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// patience is the Timeout of stores whose speed is not the story.
const patience = 20 * time.Second

var prefixes atomic.Int64

// newStore returns a store on client that shares no key with any other.
func newStore(client redis.UniversalClient) *gcra.Redis {
	r := gcra.NewRedis(client)
	r.Prefix = fmt.Sprintf("rl-%d:", prefixes.Add(1))
	r.Timeout = patience
	return r
}

// contract runs the contract on the time of the Redis behind client.
func contract(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		r := newStore(client)
		return storetest.Backend{Store: r, Advance: func(d time.Duration) { shift(t, client, r.Prefix, d) }}
	})
}

func TestRedisContract(t *testing.T) { contract(t, redistest.Any(t)) }

func TestRedisContractEmbedded(t *testing.T) { contract(t, redistest.StartEmbedded(t)) }

func TestRedisContractProtocols(t *testing.T) {
	server := redistest.Start(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			o := server.Options()
			o.Protocol = protocol
			client := redis.NewClient(o)
			t.Cleanup(func() { client.Close() })
			contract(t, client)
		})
	}
}

func TestRedisContractCluster(t *testing.T) {
	contract(t, redistest.StartCluster(t).Client())
}

func TestRedisContractRing(t *testing.T) {
	addrs := map[string]string{"one": redistest.Start(t).Addr, "two": redistest.Start(t).Addr}
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs})
	t.Cleanup(func() { ring.Close() })
	contract(t, ring)
}

// shift moves the TAT of every key with the prefix back by d. To the store that
// is as if time had gone on by d, which no command can do to a Redis.
func shift(t testing.TB, client redis.UniversalClient, prefix string, d time.Duration) {
	t.Helper()
	ctx := context.Background()
	for _, key := range keysOf(t, client, prefix) {
		tat, err := client.Get(ctx, key).Int64()
		if err == redis.Nil {
			continue // has just expired
		}
		if err == nil {
			err = client.SetArgs(ctx, key, tat-int64(d/tick), redis.SetArgs{Mode: "XX", KeepTTL: true}).Err()
		}
		if err != nil && err != redis.Nil {
			t.Fatalf("shifting %s by %v: %v", key, d, err)
		}
	}
}

const tick = 100 * time.Nanosecond

// keysOf lists the keys with the prefix, on all servers of the client.
func keysOf(t testing.TB, client redis.UniversalClient, prefix string) []string {
	t.Helper()
	var mu sync.Mutex
	var keys []string
	scan := func(ctx context.Context, c *redis.Client) error {
		it := c.Scan(ctx, 0, prefix+"*", 1000).Iterator()
		for it.Next(ctx) {
			mu.Lock()
			keys = append(keys, it.Val())
			mu.Unlock()
		}
		return it.Err()
	}
	ctx, err := context.Background(), error(nil)
	switch c := client.(type) {
	case *redis.Client:
		err = scan(ctx, c)
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, scan)
	case *redis.Ring:
		err = c.ForEachShard(ctx, scan)
	default:
		err = fmt.Errorf("do not know how to scan a %T", client)
	}
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// tatOf is the stored TAT of the only key with the prefix.
func onlyKey(t testing.TB, client redis.UniversalClient, prefix string) (key string, tat int64) {
	t.Helper()
	keys := keysOf(t, client, prefix)
	if len(keys) != 1 {
		t.Fatalf("got keys %q with prefix %s; want one", keys, prefix)
	}
	v := client.Get(context.Background(), keys[0]).Val()
	tat, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		t.Fatalf("the value of %s is %q; want a plain integer", keys[0], v)
	}
	return keys[0], tat
}
