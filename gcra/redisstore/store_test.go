package redisstore_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/gcra/storetest"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// patience is the Timeout of stores whose speed is not the story.
const patience = 20 * time.Second

var prefixes atomic.Int64

// newStore returns a store on client that shares no key with any other. It has
// no mirror: tests move time and damage values behind its back.
func newStore(client redis.UniversalClient) *redisstore.Store {
	r := redisstore.New(client)
	r.Prefix = fmt.Sprintf("rl-%d:", prefixes.Add(1))
	r.Timeout = patience
	r.NoDenialCache = true
	return r
}

var _ gcra.LocalStore = (*redisstore.Store)(nil)

// anyRedis is redistest.Any with a client that is as patient as newStore.
func anyRedis(t testing.TB) *redis.Client { return unhurried(t, redistest.Any(t).Options().Addr) }

func embedded(t testing.TB) *redis.Client {
	return unhurried(t, redistest.StartEmbedded(t).Options().Addr)
}

func unhurried(t testing.TB, addr string) *redis.Client {
	t.Helper()
	return newClient(t, &redis.Options{Addr: addr, ReadTimeout: patience, WriteTimeout: patience, DialTimeout: patience})
}

func newClient(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// contract runs the contract on the time of the Redis behind client.
func contract(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		r := newStore(client)
		return storetest.Backend{Store: r, Advance: func(d time.Duration) { shift(t, client, r.Prefix, d) }}
	})
}

func TestRedisContract(t *testing.T) { contract(t, anyRedis(t)) }

// On a clock that stands still every answer is exact to the tick.
func TestRedisContractExact(t *testing.T) {
	for _, tt := range []struct {
		name string
		open func(testing.TB) *redis.Client
	}{{"Any", anyRedis}, {"Embedded", embedded}} {
		t.Run(tt.name, func(t *testing.T) {
			client := tt.open(t)
			c := stopClock(t, client)
			storetest.Run(t, func(t testing.TB) storetest.Backend {
				return storetest.Backend{Store: newStore(client), Advance: c.advance, Exact: true}
			})
		})
	}
}

// With the mirror, as it is by default, on a clock that goes with the shifts.
func TestRedisContractMirror(t *testing.T) {
	client := anyRedis(t)
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		if strings.HasSuffix(t.Name(), "/clock_going_back") {
			t.Skip("the mirror refuses once more before Redis gets to bring the TAT down")
		}
		r := newStore(client)
		r.DenialTTL = time.Hour
		start := time.Now()
		var shifted atomic.Int64
		r.SetClock(func() time.Time { return start.Add(time.Since(start) + time.Duration(shifted.Load())) })
		return storetest.Backend{Store: r, Remembers: true, Advance: func(d time.Duration) {
			shift(t, client, r.Prefix, d)
			if d > 0 { // a clock that the server sets back is not this process's
				shifted.Add(int64(d))
			}
		}}
	})
}

func TestRedisContractEmbedded(t *testing.T) { contract(t, embedded(t)) }

func TestRedisContractProtocols(t *testing.T) {
	server := redistest.Start(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			o := server.Options()
			o.Protocol = protocol
			o.ReadTimeout = patience
			contract(t, newClient(t, o))
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

// Settings that make no sense are errors of every call.
func TestInvalidSettings(t *testing.T) {
	for want, set := range map[string]func(*redisstore.Store){
		"prefix is":    func(r *redisstore.Store) { r.Prefix = "{x}" },
		"timeout is":   func(r *redisstore.Store) { r.Timeout = -1 },
		"DenialTTL is": func(r *redisstore.Store) { r.DenialTTL = -1 },
	} {
		r := redisstore.New(newClient(t, &redis.Options{Addr: "127.0.0.1:1"}))
		set(r)
		for range 2 {
			if _, err := gcra.Take(t.Context(), r, hourly("s", 10)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v; want an error with %q", err, want)
			}
		}
	}
}
