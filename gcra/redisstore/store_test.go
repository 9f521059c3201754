package redisstore_test

import (
	"context"
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
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

var _ gcra.LocalStore = (*redisstore.Store)(nil)

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

// Under any sequence of calls, also with limits that change, a real Redis and
// Memory give the same answer as the model, to the tick.
func TestStoresAgree(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client)
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SliceOfN(gcratest.AnyLimit(), 1, 3).Draw(t, "limits")
		l, redis := gcratest.NewModel(), newStore(client)
		now := time.Unix(1_800_000_000, 0)
		memory := &gcra.Memory{Now: func() time.Time { return now }}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			d := gcratest.Pause(t, limits[0])
			l.Now += int64(d / tick)
			now = now.Add(d)
			server.advance(d)
			charges := gcratest.AnyAdmission(t, limits)
			refund := rapid.IntRange(0, 5).Draw(t, "refund") == 0
			want := slices.Clone(charges)
			if _, err := gcratest.TakeOrRefund(t.Context(), l, want, refund); err != nil {
				t.Fatal(err)
			}
			for name, store := range map[string]gcra.Store{"Memory": memory, "Redis": redis} {
				got := slices.Clone(charges)
				allowed, err := gcratest.TakeOrRefund(t.Context(), store, got, refund)
				if err != nil || allowed != gcratest.Passed(want) {
					t.Fatalf("%s: %+v: got %v, %v; want %v, nil", name, charges, allowed, err, gcratest.Passed(want))
				}
				for i := range got {
					if got[i].Result != want[i].Result {
						t.Fatalf("%s: charge %d of %d, refund %v, %+v:\ngot  %+v\nwant %+v", name, i, len(got), refund, charges[i], got[i].Result, want[i].Result)
					}
				}
			}
		}
	})
}

// The key is the prefix, the subject in braces and the policy.
func TestRedisKeys(t *testing.T) {
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
			t.Errorf("prefix %q: got keys %q; want %q", tt.prefix, redistest.Keys(t, client, "*"), tt.want)
		}
	}
	for _, prefix := range []string{"{rl}:", "a{", "}"} {
		r := redisstore.New(client)
		r.Prefix = prefix
		_, err := gcra.Take(t.Context(), r, gcra.Charge{Limit: gcra.PerHour(5), Cost: 1})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("prefix is %q", prefix)) {
			t.Errorf("prefix %q: got %v; want an error that names it", prefix, err)
		}
	}
}

// One admission takes 256 charges at most; more are an error and charge nobody.
func TestRedisTooManyCharges(t *testing.T) {
	client := anyRedis(t)
	r := newStore(client)
	charges := make([]gcra.Charge, 257)
	for i := range charges {
		charges[i] = gcra.Charge{Subject: "s", Policy: fmt.Sprint(i), Limit: gcra.PerHour(int64(300 + i)), Cost: 1}
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

// A store without a client says so, and crashes nobody.
func TestNoClient(t *testing.T) {
	for name, r := range map[string]*redisstore.Store{
		"zero":      {},
		"nil":       redisstore.New(nil),
		"typed nil": redisstore.New((*redis.Client)(nil)),
	} {
		_, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: "a", Policy: "p", Limit: gcra.PerHour(1), Cost: 1})
		if err == nil || !strings.Contains(err.Error(), "client is nil") {
			t.Errorf("%s: got %v; want an error about the client", name, err)
		}
		if r.Local() == nil {
			t.Errorf("%s: no local store", name)
		}
	}
}
