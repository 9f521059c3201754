package redisstore_test

import (
	"fmt"
	"hash/fnv"
	"io"
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

// A service that changes behind its address is sent to in the new way: at once if it answers an error that says so, as a server
// that becomes a cluster, and otherwise by the test of the next minute.
func TestServiceThatChanges(t *testing.T) {
	t.Parallel()
	one := func(string) int { return 0 }
	for _, tt := range []struct {
		name          string
		before, after func(key string) int // nil is a cluster
		from, to      redisstats.Kind
	}{
		{"a server becomes a cluster", one, nil, redisstats.OneKeyspace, redisstats.BySubject},
		{"a proxy gets a second server", one, byTag, redisstats.OneKeyspace, redisstats.BySubject},
		{"a proxy without hash tags gets a second server", one, byKey, redisstats.OneKeyspace, redisstats.Unusable},
		{"a proxy loses its second server", byTag, one, redisstats.BySubject, redisstats.OneKeyspace},
		{"a proxy without hash tags loses its second server", byKey, one, redisstats.Unusable, redisstats.OneKeyspace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var changed atomic.Bool
			var tests atomic.Int64 // commands of tests
			router := redistest.NewRouter(t, func(key string) int {
				if strings.Contains(key, "{~test") {
					tests.Add(1)
				}
				if changed.Load() {
					return tt.after(key)
				}
				return tt.before(key)
			}, redistest.Start(t), redistest.Start(t))
			proxy := redistest.NewProxy(t, strings.TrimPrefix(router, "redis://"))

			r := openStore(t, "redis://"+proxy.Addr, config{Timeout: patience, DenialTTL: -1, Logger: quiet})
			var later atomic.Int64
			r.SetClock(func() time.Time { return time.Now().Add(time.Duration(later.Load())) })
			decides := func(round int, kind redisstats.Kind) {
				if kind != redisstats.Unusable {
					exactlyTwenty(t, round, r)
				} else if _, err := gcra.Take(t.Context(), r, plenty); err == nil || !strings.Contains(err.Error(), "different servers") {
					t.Errorf("Take: got %v; want an error that says why", err)
				}
			}

			redistest.Eventually(t, patience, "the kind", func() bool {
				_ = answers(r)
				return kind(r) == tt.from
			})
			before := tests.Load()
			decides(0, tt.from)
			if n := tests.Load() - before; n > 0 {
				t.Errorf("got %d commands of a test within the minute; want none", n)
			}

			if tt.after == nil {
				proxy.Move(redistest.NewSingleNodeCluster(t).Addr)
				// As long as all callers ask for one subject, the store does not notice.
				redistest.Eventually(t, patience, "an answer", func() bool { return answers(r) })
			} else {
				changed.Store(true)
				later.Store(int64(61 * time.Second))
				redistest.Eventually(t, patience, "the new kind", func() bool {
					ok := answers(r)
					return kind(r) == tt.to && ok == (tt.to != redisstats.Unusable)
				})
			}
			decides(1, tt.to)
			if kind(r) != tt.to {
				t.Errorf("got kind %q; want %q", kind(r), tt.to)
			}
		})
	}
}

// A Sentinel group and the shards of a ring are one keyspace each, after the first batches.
func TestOneKeyspace(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": redistest.Start(t).Addr, "b": redistest.Start(t).Addr}, ReadTimeout: patience})
	t.Cleanup(func() { ring.Close() })
	for name, client := range map[string]redis.UniversalClient{"Sentinel": redistest.StartSentinel(t).Client(), "Ring": ring} {
		r := newStore(t, client, config{})
		for n := range 50 {
			gcratest.MustTake(t, r, hourly(fmt.Sprint("user", n), 10), hourly(fmt.Sprint("address", n), 10))
		}
		for _, s := range r.Stats().Servers {
			if s.Kind != redisstats.OneKeyspace {
				t.Errorf("%s: %q has kind %q; want %q", name, s.Server, s.Kind, redisstats.OneKeyspace)
			}
		}
	}
}

// An endpoint that sends commands to another server from some moment on, as in a failover that loses writes, is one keyspace
// before and after, and taken for nothing else.
func TestKindInAFailover(t *testing.T) {
	t.Parallel()
	var left atomic.Int64 // commands until the failover
	url := redistest.NewRouter(t, func(string) int {
		if left.Add(-1) >= 0 {
			return 0
		}
		return 1
	}, redistest.Start(t), redistest.Start(t))

	for before := range int64(106) { // as many commands as a round has until the kind is known
		r := openStore(t, url+"?dial_timeout=20s", config{Prefix: newPrefix(), Timeout: patience})
		left.Store(before)
		for range 5 {
			gcratest.MustTake(t, r, plenty)
			if got := kind(r); got != "" && got != redisstats.OneKeyspace {
				t.Errorf("a failover after %d commands: got kind %q; want %q or none", before, got, redisstats.OneKeyspace)
			}
		}
		if settled(t, r); kind(r) != redisstats.OneKeyspace {
			t.Errorf("a failover after %d commands: got kind %q after Ping; want %q", before, kind(r), redisstats.OneKeyspace)
		}
		r.Close()
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
