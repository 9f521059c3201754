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
	t.Parallel()
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
			t.Parallel()
			client := tt.open(t)
			t.Cleanup(func() { client.Close() })
			storetest.Run(t, func(t testing.TB) storetest.Backend {
				r := newStore(t, client, config{})
				return storetest.Backend{Store: r, Advance: func(d time.Duration) { shift(t, client, r.Prefix(), d) }}
			})
		})
	}
}

// On a stopped clock every answer is exact to the tick.
func TestContractExact(t *testing.T) {
	t.Parallel()
	for _, tt := range anyAndEmbedded {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client := tt.open(t)
			c := stopClock(t, client)
			storetest.Run(t, func(testing.TB) storetest.Backend {
				return storetest.Backend{Store: newStore(t, client, config{}), Advance: c.advance, Exact: true}
			})
		})
	}
}

// With the denial cache, on a clock that moves with the shifts.
func TestContractDenialCache(t *testing.T) {
	client := anyRedis(t)
	var stores []*redisstore.Store
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		r := newStore(t, client, config{DenialTTL: time.Hour})
		stores = append(stores, r)
		start := time.Now()
		var shifted atomic.Int64
		r.SetClock(func() time.Time { return start.Add(time.Since(start) + time.Duration(shifted.Load())) })

		return storetest.Backend{Store: r, Remembers: true, Advance: func(d time.Duration) {
			shift(t, client, r.Prefix(), d)
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
	t.Parallel()
	client := anyRedis(t)
	server := stopClock(t, client)
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SliceOfN(rapid.OneOf(gcratest.AnyLimit(), gcratest.AnyQuota()), 1, 3).Draw(t, "limits")
		if err := server.set(5e14); err != nil { // quotas wait for months, and the clock is exact until 2053
			t.Fatal(err)
		}
		model, store := gcratest.NewModel(server.now()), newStore(t, client, config{})
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			d := gcratest.Pause(t, limits[0])
			model.Advance(d)
			server.advance(d)
			gcratest.CheckSame(t, model, store, limits)
		}
	})
}

// New and Open return an error for each mistake, with the field, its value and what would be right.
func TestMistakes(t *testing.T) {
	client := newClient(t, &redis.Options{Addr: "127.0.0.1:1"})
	for _, tt := range []struct {
		client redis.UniversalClient
		url    string
		cfg    config
		want   string
	}{
		{nil, "", config{}, "client is nil; want a *redis.Client"},
		{(*redis.Client)(nil), "", config{}, "client is nil; want a *redis.Client"},
		{nil, "localhost:6379", config{}, "redis URL: "},
		{client, "redis://127.0.0.1:1", config{Prefix: "{rl}:"}, `Prefix is "{rl}:"; want one without braces`},
		{client, "redis://127.0.0.1:1", config{Prefix: "a{"}, `Prefix is "a{"; want`},
		{client, "redis://127.0.0.1:1", config{Prefix: "}"}, `Prefix is "}"; want`},
		{client, "redis://127.0.0.1:1", config{Timeout: -1}, "Timeout is -1ns; want 1ms to 1m, or 0 (50ms)"},
		{client, "redis://127.0.0.1:1", config{Timeout: 50}, "Timeout is 50ns; want"},
		{client, "redis://127.0.0.1:1", config{Timeout: time.Hour}, "Timeout is 1h0m0s; want"},
		{client, "redis://127.0.0.1:1", config{DenialTTL: 5}, "DenialTTL is 5ns; want 1ms or more, 0 (1s), or a negative one for no cache"},
	} {
		if tt.url == "" || tt.client != nil {
			r, err := redisstore.New(tt.client, tt.cfg)
			if r != nil || err == nil || !strings.Contains(err.Error(), "redisstore: "+tt.want) {
				t.Errorf("New with %+v: got %v, %v; want an error with %q", tt.cfg, r, err, tt.want)
			}
		}

		if tt.url != "" {
			r, err := redisstore.Open(tt.url, tt.cfg)
			if r != nil || err == nil || !strings.Contains(err.Error(), "redisstore: "+tt.want) {
				t.Errorf("Open(%q) with %+v: got %v, %v; want an error with %q", tt.url, tt.cfg, r, err, tt.want)
			}
		}
	}

	all := config{Prefix: "{rl}:", Timeout: -1, DenialTTL: 5}

	_, onNil := redisstore.New(nil, all)
	_, opened := redisstore.Open("localhost:6379", all)
	for call, err := range map[string]error{"New": onNil, "Open": opened} {
		if err == nil || strings.Count(err.Error(), "\n") != 3 {
			t.Errorf("%s with four mistakes: got %v; want a line for each", call, err)
		}
	}
}

// The zero Config is what a first program has: the prefix rl:, calls that end after 50 ms, and denials that are cached.
// With a negative DenialTTL Redis makes every denial.
func TestZeroConfig(t *testing.T) {
	server := redistest.Start(t)
	for _, tt := range []struct {
		cfg    config
		cached bool
	}{{config{}, true}, {config{DenialTTL: -1}, false}, {config{DenialTTL: -time.Hour}, false}} {
		server.Client().FlushAll(t.Context())

		r := openStore(t, server.URL(), tt.cfg)
		denied := 0
		redistest.Eventually(t, patience, "ten denials", func() bool {
			res, err := gcra.Take(t.Context(), r, hourly("s", 1))
			if err == nil && !res.Allowed {
				denied++
			}
			return denied >= 10 && (!tt.cached || r.Stats().CachedDenials > 0)
		})

		if n := r.Stats().CachedDenials; !tt.cached && n != 0 {
			t.Errorf("%+v: got %d denials from the cache; want none", tt.cfg, n)
		}
		if n := server.Client().Exists(t.Context(), "rl:{s}:p").Val(); n != 1 {
			t.Errorf("%+v: got keys %q; want rl:{s}:p", tt.cfg, redistest.Keys(t, server.Client(), ""))
		}
	}
}

// An admission has at most 256 charges. More are an error, and none is charged.
func TestTooManyCharges(t *testing.T) {
	client := anyRedis(t)
	r := newStore(t, client, config{})
	charges := make([]gcra.Charge, 257)
	for i := range charges {
		charges[i] = hourly("s", int64(300+i))
		charges[i].Policy = fmt.Sprint(i)
	}

	if _, err := r.Take(t.Context(), charges); err == nil {
		t.Error("got no error for 257 charges")
	}
	if keys := redistest.Keys(t, client, r.Prefix()); len(keys) != 0 {
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
		s := storeOn(t, client, config{Timeout: patience})
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

// A reset is for all processes. The one that made it sees it at once, another that
// has cached a denial after the default DenialTTL of 1 s.
func TestResetIsSeenAfterDenialTTL(t *testing.T) {
	client := redistest.Any(t)
	now := time.Now()
	var stores [2]*redisstore.Store
	for i := range stores {
		stores[i] = storeOn(t, client, config{Timeout: patience})
		stores[i].SetClock(func() time.Time { return now })
	}

	ours, other := stores[0], stores[1]
	charge := gcra.Charge{Subject: "s", Policy: "p", Limit: gcra.PerHour(2), Cost: 1}
	allows := func(s *redisstore.Store) bool { return gcratest.MustTake(t, s, charge)[0].Result.Allowed }
	for range 2 {
		allows(ours)
	}
	if allows(ours) || allows(other) {
		t.Fatal("the third of 2 is allowed; want a denial, which is then cached")
	}

	if err := gcra.Reset(t.Context(), ours, gcra.Charge{Subject: "s", Policy: "p", Limit: charge.Limit}); err != nil {
		t.Fatal(err)
	}
	if !allows(ours) {
		t.Error("after the reset, here: denied; want allowed")
	}
	for _, step := range []struct {
		passed time.Duration
		want   bool
	}{{0, false}, {900 * time.Millisecond, false}, {101 * time.Millisecond, true}} {
		now = now.Add(step.passed)
		if got := allows(other); got != step.want {
			t.Errorf("%v later, elsewhere: got allowed %v; want %v", step.passed, got, step.want)
		}
	}
}
