package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/gcra/storetest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

var _ gcra.LocalStore = (*redisstore.Store)(nil)

func TestContract(t *testing.T) {
	protocol := func(version int) func(*testing.T) redis.UniversalClient {
		return func(t *testing.T) redis.UniversalClient {
			o := redistest.Start(t).Options()
			o.Protocol, o.ReadTimeout = version, patience
			return newClient(t, o)
		}
	}
	for _, tt := range []struct {
		name string
		open func(*testing.T) redis.UniversalClient
	}{
		{"RESP2", protocol(2)},
		{"RESP3", protocol(3)},
		{"embedded", func(t *testing.T) redis.UniversalClient { return embedded(t) }},
		{"cluster", func(t *testing.T) redis.UniversalClient {
			o := redistest.StartCluster(t).Options()
			o.ReadTimeout = patience
			return redis.NewClusterClient(o)
		}},
		{"ring", func(t *testing.T) redis.UniversalClient {
			addrs := map[string]string{"one": redistest.Start(t).Addr, "two": redistest.Start(t).Addr}
			return redis.NewRing(&redis.RingOptions{Addrs: addrs, ReadTimeout: patience})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := tt.open(t)
			t.Cleanup(func() { client.Close() })
			storetest.Run(t, func(t testing.TB) storetest.Backend {
				r := newStore(client)
				return storetest.Backend{Store: r, Advance: func(d time.Duration) { shift(t, client, r.Prefix, d) }}
			})
		})
	}
}

// On a stopped clock every answer is exact to the tick.
func TestContractExact(t *testing.T) {
	for _, tt := range anyAndEmbedded {
		t.Run(tt.name, func(t *testing.T) {
			client := tt.open(t)
			c := stopClock(t, client)
			storetest.Run(t, func(testing.TB) storetest.Backend {
				return storetest.Backend{Store: newStore(client), Advance: c.advance, Exact: true}
			})
		})
	}
}

// With the denial cache, on a clock that moves with the shifts.
func TestContractDenialCache(t *testing.T) {
	client := anyRedis(t)
	var stores []*redisstore.Store
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		if strings.HasSuffix(t.Name(), "/clock_going_back") {
			t.Skip("the cache denies once more before Redis can bring the TAT down")
		}
		r := newStore(client)
		r.NoDenialCache = false
		r.DenialTTL = time.Hour
		stores = append(stores, r)
		start := time.Now()
		var shifted atomic.Int64
		r.SetClock(func() time.Time { return start.Add(time.Since(start) + time.Duration(shifted.Load())) })
		return storetest.Backend{Store: r, Remembers: true, Advance: func(d time.Duration) {
			shift(t, client, r.Prefix, d)
			if d > 0 { // the clock of this process does not go back with the server's
				shifted.Add(int64(d))
			}
		}}
	})
	if !slices.ContainsFunc(stores, func(r *redisstore.Store) bool { return r.Stats().CachedDenials > 0 }) {
		t.Error("got no cached denial; want some, or nothing is tested")
	}
}

// Any sequence of calls, also with limits that change, has the results of the
// model, exact to the tick.
func TestStoreIsTheModel(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client)
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SliceOfN(rapid.OneOf(gcratest.AnyLimit(), gcratest.AnyQuota()), 1, 3).Draw(t, "limits")
		if err := server.set(5e14); err != nil { // quotas wait for months, and the clock is exact until 2053
			t.Fatal(err)
		}
		model, store := gcratest.NewModel(server.now()), newStore(client)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			d := gcratest.Pause(t, limits[0])
			model.Advance(d)
			server.advance(d)
			gcratest.CheckSame(t, model, store, limits)
		}
	})
}

// A key is the prefix, the subject in braces and the policy.
func TestKeys(t *testing.T) {
	client := anyRedis(t)
	for _, tt := range []struct{ prefix, want string }{
		{"", "rl:{ip:192.0.2.7}:login"},
		{"app1:", "app1:{ip:192.0.2.7}:login"},
		{"v=2 ", "v=2 {ip:192.0.2.7}:login"},
	} {
		r := redisstore.New(client)
		r.Prefix, r.Timeout = tt.prefix, patience
		gcratest.MustTake(t, r, gcra.Charge{Subject: "ip:192.0.2.7", Policy: "login", Limit: gcra.PerHour(5), Cost: 1})
		if n := client.Exists(t.Context(), tt.want).Val(); n != 1 {
			t.Errorf("prefix %q: got keys %q; want %q", tt.prefix, redistest.Keys(t, client, ""), tt.want)
		}
	}
}

// Invalid settings are errors of every call.
func TestInvalidSettings(t *testing.T) {
	for want, set := range map[string]func(*redisstore.Store){
		`prefix is "{rl}:"`: func(r *redisstore.Store) { r.Prefix = "{rl}:" },
		`prefix is "a{"`:    func(r *redisstore.Store) { r.Prefix = "a{" },
		`prefix is "}"`:     func(r *redisstore.Store) { r.Prefix = "}" },
		"timeout is":        func(r *redisstore.Store) { r.Timeout = -1 },
		"DenialTTL is":      func(r *redisstore.Store) { r.DenialTTL = -1 },
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

// A store without a client returns an error and does not panic.
func TestNoClient(t *testing.T) {
	for name, r := range map[string]*redisstore.Store{
		"zero":      {},
		"nil":       redisstore.New(nil),
		"typed nil": redisstore.New((*redis.Client)(nil)),
	} {
		_, take := gcra.Take(t.Context(), r, hourly("s", 1))
		for call, err := range map[string]error{"Take": take, "Ping": r.Ping(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), "client is nil") {
				t.Errorf("%s: %s: got %v; want an error with the client", name, call, err)
			}
		}
		if r.Local(0) == nil {
			t.Errorf("%s: got no local store", name)
		}
	}
}

// An admission has at most 256 charges. More are an error, and none is charged.
func TestTooManyCharges(t *testing.T) {
	client := anyRedis(t)
	r := newStore(client)
	charges := make([]gcra.Charge, 257)
	for i := range charges {
		charges[i] = hourly("s", int64(300+i))
		charges[i].Policy = fmt.Sprint(i)
	}
	if _, err := r.Take(t.Context(), charges); err == nil {
		t.Error("got no error for 257 charges")
	}
	if keys := redistest.Keys(t, client, r.Prefix); len(keys) != 0 {
		t.Errorf("got %d keys charged; want none", len(keys))
	}
	gcratest.MustTake(t, r, charges[:256]...)
	for i, c := range charges[:256] {
		if want := int64(300 + i - 1); c.Result.Remaining != want {
			t.Errorf("charge %d of 256: got %d remaining; want %d", i, c.Result.Remaining, want)
		}
	}
}

// Stores whose clocks differ by hours share one limit, with the same waits.
func TestClockSkew(t *testing.T) {
	client := patientClient(t, redistest.Start(t).Addr)
	var stores []*redisstore.Store
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour} {
		s := redisstore.New(client)
		s.Timeout = patience
		s.SetClock(func() time.Time { return time.Now().Add(skew) })
		stores = append(stores, s)
	}
	const burst = 30
	c := gcra.Charge{Subject: "everybody", Policy: "p", Limit: gcra.PerDay(burst), Cost: 1}
	for i := range 2 * burst {
		res, err := gcra.Take(t.Context(), stores[i%len(stores)], c)
		if want := i < burst; err != nil || res.Allowed != want {
			t.Errorf("call %d: got %+v, %v; want allowed %v", i, res, err, want)
		}
		if day := 24 * time.Hour; res.ResetAfter > day || res.RetryAfter > day/burst+time.Minute {
			t.Errorf("call %d: got %+v; want waits of this limit", i, res)
		}
	}
}
