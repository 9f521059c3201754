package slidinglog_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/slidinglog"
	"github.com/seed-e377111c/ratelimit/gcra/storetest"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// patience is the Timeout of stores whose speed is not the story.
const patience = 20 * time.Second

var prefixes atomic.Int64

// newStore returns a store on client that shares no key with any other.
func newStore(client redis.UniversalClient) *slidinglog.Redis {
	r := slidinglog.NewRedis(client)
	r.Prefix = fmt.Sprintf("sl-%d:", prefixes.Add(1))
	r.Timeout = patience
	return r
}

// patient is a client of a server that waits as long as newStore.
func patient(t testing.TB, s *redistest.Server) *redis.Client {
	t.Helper()
	o := s.Options()
	o.ReadTimeout, o.WriteTimeout, o.DialTimeout = patience, patience, patience
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// contract runs the contract on the time of the Redis behind client.
func contract(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		r := newStore(client)
		return storetest.Backend{Store: r, Advance: func(d time.Duration) { shift(t, client, r.Prefix, d) }, Algorithm: storetest.Sliding}
	})
}

func TestRedisContract(t *testing.T) { contract(t, patient(t, redistest.Start(t))) }

func TestRedisContractEmbedded(t *testing.T) { contract(t, redistest.StartEmbedded(t)) }

// On a clock that stands still every answer is exact to the microsecond.
func TestRedisContractExact(t *testing.T) {
	for _, tt := range []struct {
		name string
		open func(testing.TB) *redis.Client
	}{{"Any", redistest.Any}, {"Embedded", redistest.StartEmbedded}} {
		t.Run(tt.name, func(t *testing.T) {
			client := tt.open(t)
			c := stopClock(t, client)
			storetest.Run(t, func(testing.TB) storetest.Backend {
				return storetest.Backend{Store: newStore(client), Advance: c.advance, Exact: true, Algorithm: storetest.Sliding}
			})
		})
	}
}

func TestRedisContractCluster(t *testing.T) {
	o := redistest.StartCluster(t).Options()
	o.ReadTimeout = patience
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { client.Close() })
	contract(t, client)
}

func TestRedisContractRing(t *testing.T) {
	addrs := map[string]string{"one": redistest.Start(t).Addr, "two": redistest.Start(t).Addr}
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs, ReadTimeout: patience})
	t.Cleanup(func() { ring.Close() })
	contract(t, ring)
}

// shift makes every charge in the logs with the prefix older by d. To the store
// that is as if time had gone on by d, which no command can do to a Redis.
func shift(t testing.TB, client redis.UniversalClient, prefix string, d time.Duration) {
	t.Helper()
	ctx := context.Background()
	for _, key := range keysOf(t, client, prefix) {
		for _, z := range client.ZRangeWithScores(ctx, key, 0, -1).Val() {
			z.Score -= float64(d.Microseconds())
			if err := client.ZAddXX(ctx, key, z).Err(); err != nil {
				t.Fatalf("shifting %s by %v: %v", key, d, err)
			}
		}
	}
}

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

// stoppedClock is the time of a Redis as its scripts see it: that of the key
// "clock", in microseconds.
type stoppedClock struct {
	t      testing.TB
	client *redis.Client
	micros atomic.Int64
}

// stopClock makes the client send scripts of the same text but for the lines
// that read the time and set a log's expiry, which must not come on a clock that
// does not move.
func stopClock(t testing.TB, client *redis.Client) *stoppedClock {
	t.Helper()
	replace := func(text, old, with string) string {
		if n := strings.Count(text, old); n != 1 {
			t.Fatalf("the script has %q %d times; want once", old, n)
		}
		return strings.Replace(text, old, with, 1)
	}
	log := luaText(t, "log.lua")
	stopped := replace(log, "local time = redis.call('TIME')\n", "")
	stopped = replace(stopped, "time[1] * 1000000 + time[2]", "tonumber(redis.call('GET', 'clock'))")
	take, refund := luaText(t, "take.lua"), luaText(t, "refund.lua")
	client.AddHook(rewrite{
		log + take:   stopped + replace(take, "text(math.ceil((at + per) / 1000))", "'9000000000000'"),
		log + refund: stopped + refund,
	})
	c := &stoppedClock{t: t, client: client}
	c.set(1_800_000_000_000_000)
	return c
}

func luaText(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (c *stoppedClock) set(micros int64) {
	c.micros.Store(micros)
	if err := c.client.Set(context.Background(), "clock", strconv.FormatInt(micros, 10), 0).Err(); err != nil {
		c.t.Errorf("setting the clock: %v", err)
	}
}

func (c *stoppedClock) advance(d time.Duration) { c.set(c.micros.Load() + d.Microseconds()) }

// rewrite is a hook that sends other scripts than it is told to: by their text,
// as no server has heard of them.
type rewrite map[string]string

func (r rewrite) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r rewrite) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r rewrite) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "eval" {
			args := cmd.Args()
			args[1] = r[args[1].(string)]
		}
		return next(ctx, cmd)
	}
}
