package redisstore_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// byTag and byKey choose one of two servers by a key's hash tag, or by the whole key.
func byTag(key string) int {
	tag, _, _ := strings.Cut(key, "}")
	return byKey(tag)
}

func byKey(key string) int {
	h := fnv.New32a()
	_, _ = io.WriteString(h, key)
	return int(h.Sum32()>>8) % 2
}

// kind is what the store has learned of its only server.
func kind(r *redisstore.Store) redisstats.Kind { return r.Stats().Servers[0].Kind }

// A server that becomes a cluster, as when a service is moved to a larger plan, is sent to by subject from then on.
func TestServerBecomesACluster(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	r := openStore(t, "redis://"+proxy.Addr, config{Timeout: patience})
	if err := r.Ping(t.Context()); err != nil || kind(r) != redisstats.OneKeyspace {
		t.Fatalf("got %v, kind %q; want no error, %q", err, kind(r), redisstats.OneKeyspace)
	}

	// As long as all callers ask for one subject, the store does not notice.
	proxy.Move(redistest.NewSingleNodeCluster(t).Addr)
	redistest.Eventually(t, patience, "an answer", func() bool { return answers(r) })

	redistest.Together(64, func(caller int) {
		for i := range 20 {
			c := []gcra.Charge{hourly(fmt.Sprint(caller, " ", i), 10), hourly(fmt.Sprint("address ", caller, " ", i), 10)}
			if ok, err := r.Take(t.Context(), c[:1+i%2]); err != nil || !ok {
				t.Errorf("got %v, %v; want true", ok, err)
			}
		}
	})

	if kind(r) != redisstats.BySubject {
		t.Errorf("got kind %q; want %q", kind(r), redisstats.BySubject)
	}
}

// A service that changes behind its address, and answers no error that says so, is noticed by the test of the next minute.
func TestServiceThatChanges(t *testing.T) {
	t.Parallel()
	one := func(string) int { return 0 }
	for _, tt := range []struct {
		name          string
		before, after func(key string) int
		from, to      redisstats.Kind
	}{
		{"a proxy gets a second server", one, byTag, redisstats.OneKeyspace, redisstats.BySubject},
		{"a proxy without hash tags gets a second server", one, byKey, redisstats.OneKeyspace, redisstats.Unusable},
		{"a proxy loses its second server", byTag, one, redisstats.BySubject, redisstats.OneKeyspace},
		{"a proxy without hash tags loses its second server", byKey, one, redisstats.Unusable, redisstats.OneKeyspace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var changed atomic.Bool
			var tests atomic.Int64 // commands of tests
			url := redistest.NewRouter(t, func(key string) int {
				if strings.Contains(key, "{~test") {
					tests.Add(1)
				}
				if changed.Load() {
					return tt.after(key)
				}
				return tt.before(key)
			}, redistest.Start(t), redistest.Start(t))

			r := openStore(t, url, config{Timeout: patience, DenialTTL: -1, Logger: quiet})
			var later atomic.Int64
			r.SetClock(func() time.Time { return time.Now().Add(time.Duration(later.Load())) })

			if tt.from != redisstats.Unusable {
				exactlyTwenty(t, r, 0)
			}
			redistest.Eventually(t, patience, "the kind", func() bool {
				_ = answers(r)
				return kind(r) == tt.from
			})

			before := tests.Load()
			if tt.from != redisstats.Unusable {
				exactlyTwenty(t, r, 1)
			} else if answers(r) {
				t.Error("got an answer of a proxy without hash tags; want none")
			}
			if n := tests.Load() - before; n > 0 {
				t.Errorf("got %d commands of a test within the minute; want none", n)
			}

			changed.Store(true)
			later.Store(int64(61 * time.Second))
			redistest.Eventually(t, patience, "the new kind", func() bool {
				ok := answers(r)
				return kind(r) == tt.to && ok == (tt.to != redisstats.Unusable)
			})

			if tt.to == redisstats.Unusable {
				if _, err := gcra.Take(t.Context(), r, plenty); err == nil || !strings.Contains(err.Error(), "different servers") {
					t.Errorf("Take: got %v; want an error that says why", err)
				}
				return
			}

			exactlyTwenty(t, r, 2)
		})
	}
}

// One Redis, a Sentinel group and the shards of a ring are one keyspace each, after the first batches.
func TestOneKeyspace(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) redis.UniversalClient{
		"Real":     func(t *testing.T) redis.UniversalClient { return realRedis(t) },
		"Embedded": func(t *testing.T) redis.UniversalClient { return embedded(t) },
		"Sentinel": func(t *testing.T) redis.UniversalClient { return redistest.StartSentinel(t).Client() },
		"Ring": func(t *testing.T) redis.UniversalClient {
			ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": redistest.Start(t).Addr, "b": redistest.Start(t).Addr}, ReadTimeout: patience})
			t.Cleanup(func() { ring.Close() })
			return ring
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newStore(t, open(t), config{})
			n := 0
			redistest.Eventually(t, patience, "one keyspace", func() bool {
				gcratest.MustTake(t, r, hourly(fmt.Sprint("user", n), 10), hourly(fmt.Sprint("address", n), 10))
				n++
				return !slices.ContainsFunc(r.Stats().Servers, func(s redisstats.ServerState) bool { return s.Kind != redisstats.OneKeyspace })
			})

			if n > 50 {
				t.Errorf("known after %d admissions of two subjects; want at most 50", n)
			}
			exactlyTwenty(t, r, 0)
		})
	}
}

// neverWrong checks that one keyspace was not taken for something else.
func neverWrong(t *testing.T, r *redisstore.Store) (known bool) {
	t.Helper()
	for _, s := range r.Stats().Servers {
		if s.Kind != "" && s.Kind != redisstats.OneKeyspace {
			t.Errorf("%s: got kind %q; want %q or none", s.Server, s.Kind, redisstats.OneKeyspace)
		}
		known = known || s.Kind == redisstats.OneKeyspace
	}
	return known
}

// An endpoint that sends commands to another server from some moment on, as in a failover that loses writes, is one
// keyspace before and after.
func TestKindInAFailover(t *testing.T) {
	t.Parallel()
	var left atomic.Int64 // commands until the failover
	url := redistest.NewRouter(t, func(string) int {
		if left.Add(-1) >= 0 {
			return 0
		}
		return 1
	}, redistest.Start(t), redistest.Start(t))

	for before := range int64(160) { // as many commands as a round has
		r := openStore(t, url, config{Prefix: newPrefix(), Timeout: patience})
		left.Store(before)
		for range 5 {
			gcratest.MustTake(t, r, plenty)
			neverWrong(t, r)
		}

		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := r.Ping(ctx)
		cancel()
		if err != nil || !neverWrong(t, r) {
			t.Errorf("got %v, kind %q after Ping; want no error, %q", err, kind(r), redisstats.OneKeyspace)
		}
		r.Close()
	}
}

// A ring whose shards come and go has tests under way on the old ones.
func TestKindOnARingThatReshards(t *testing.T) {
	t.Parallel()
	addrs := map[string]string{"a": redistest.Start(t).Addr, "b": redistest.Start(t).Addr, "c": redistest.Start(t).Addr}
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs, ReadTimeout: patience})
	t.Cleanup(func() { ring.Close() })

	for round := range 30 {
		r := newStore(t, ring, config{Logger: quiet})

		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ctx.Err() == nil; i++ {
				ring.SetAddrs(map[string]string{"a": addrs["a"], "b": addrs[[]string{"b", "c"}[i%2]]})
				time.Sleep(time.Millisecond)
			}
		}()

		redistest.Together(8, func(caller int) {
			for i := range 20 {
				_, _ = gcra.Take(t.Context(), r, hourly(fmt.Sprint(round, caller, i), 10)) // fails on connections that the ring closes
			}
		})

		stop()
		<-done
		neverWrong(t, r)
	}
}

// A shard that does not answer loses its keys to the others, where buckets start full.
func TestRingMovesKeys(t *testing.T) {
	t.Parallel()
	a, b := redistest.NewProxy(t, redistest.Start(t).Addr), redistest.NewProxy(t, redistest.Start(t).Addr)
	ring := redis.NewRing(&redis.RingOptions{
		Addrs: map[string]string{"a": a.Addr, "b": b.Addr}, HeartbeatFrequency: 50 * time.Millisecond, ReadTimeout: patience,
	})
	t.Cleanup(func() { ring.Close() })
	r := newStore(t, ring, config{Timeout: patience, DenialTTL: -1, Logger: quiet})

	passed := 0
	denied := func() bool {
		result, err := gcra.Take(t.Context(), r, hourly("x", 5))
		if result.Allowed {
			passed++
		}
		return err == nil && !result.Allowed
	}
	redistest.Eventually(t, patience, "a denial", denied)

	shard, err := ring.GetShardClientForKey("{x}")
	if err != nil {
		t.Fatal(err)
	}
	proxy := map[string]*redistest.Proxy{a.Addr: a, b.Addr: b}[shard.Options().Addr]
	proxy.Refuse()
	redistest.Eventually(t, patience, "a second burst", func() bool { return denied() && passed > 5 })

	proxy.Pass()
	redistest.Eventually(t, patience, "the shard again", func() bool { return ring.Len() == 2 })
	for range 10 {
		denied()
	}
	if passed != 10 {
		t.Errorf("got %d requests; want two bursts of 5", passed)
	}
}
