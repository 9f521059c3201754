package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// hiddenCluster runs a node of a cluster that has all slots, like the one endpoint of a service that hides its cluster.
func hiddenCluster(t testing.TB) *redistest.Server {
	t.Helper()
	s := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
	slots := []any{"cluster", "addslots"} // Redis 6.2 has no ADDSLOTSRANGE
	for slot := range 16384 {
		slots = append(slots, slot)
	}
	if err := s.Client().Do(t.Context(), slots...).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, patience, "all slots", func() bool {
		return s.Client().Set(t.Context(), "ready", 1, 0).Err() == nil
	})
	return s
}

// kind is what the store has learned of its only server.
func kind(r *redisstore.Store) redisstats.Kind { return r.Stats().Servers[0].Kind }

// One endpoint that hides a cluster answers CROSSSLOT to a script for several subjects. No call fails because of that.
func TestHiddenCluster(t *testing.T) {
	t.Parallel()
	server := hiddenCluster(t)
	open := func(t *testing.T) *redisstore.Store {
		log := new(diagtest.Text)
		r := openStore(t, server.URL(), config{Prefix: newPrefix(), Timeout: patience, Logger: log.Logger()})
		t.Cleanup(func() {
			if lines := log.Lines(""); len(lines) > 0 {
				t.Errorf("got log lines %q; want none", lines)
			}
			if kind(r) != redisstats.BySubject {
				t.Errorf("got kind %q; want %q", kind(r), redisstats.BySubject)
			}
		})

		return r
	}

	t.Run("many callers, from the first call on", func(t *testing.T) {
		r := open(t)
		var decided atomic.Int64
		redistest.Together(64, func(caller int) {
			for i := range 50 {
				res, err := gcra.Take(t.Context(), r, hourly(fmt.Sprint(caller, " ", i), 10))
				if err != nil {
					t.Error(err)
				} else if res.Remaining == 9 {
					decided.Add(1)
				}
			}
		})

		if n := decided.Load(); n != 3200 {
			t.Errorf("got %d of 3200 decided", n)
		}
	})

	t.Run("admissions of two subjects, from the first call on", func(t *testing.T) {
		r := open(t)
		charges := []gcra.Charge{hourly("user", 30), hourly("address", 20)}
		for i := range 20 {
			if ok, err := r.Take(t.Context(), charges); err != nil || !ok {
				t.Errorf("admission %d: got %v, %v; want true", i, ok, err)
			}
		}

		if ok, err := r.Take(t.Context(), charges); err != nil || ok {
			t.Errorf("one more than the address has: got %v, %v; want false", ok, err)
		}
		if got := spent(t, r, "user", 30); got != 20 {
			t.Errorf("got %d units of the user spent; want 20, as the address denied", got)
		}
	})

	t.Run("Ping", func(t *testing.T) {
		r := open(t)
		if err := r.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})

	t.Run("grants of an outage, and the count of servers", func(t *testing.T) {
		r := open(t)
		gcratest.MustTake(t, r, hourly("first", 10))
		for i := range 300 {
			granted(t, r, 0, hourly(fmt.Sprint(i), 10))
		}
		redistest.Eventually(t, patience, "the grants to be charged, and the count", func() bool {
			gcratest.MustTake(t, r, plenty)
			return r.Stats().ReportedUnits == 300 && r.Stats().Instances == 1
		})
	})

	t.Run("with the rights of SECURITY.md", func(t *testing.T) {
		do(t, server, "acl setuser limiter on >hunter2 ~rl:* +evalsha +eval +mget +set +time")
		r := openStore(t, "redis://limiter:hunter2@"+server.Addr, config{Timeout: patience})
		if err := r.Ping(t.Context()); err != nil || kind(r) != redisstats.BySubject {
			t.Errorf("got %v, kind %q; want no error, %q", err, kind(r), redisstats.BySubject)
		}
		for i := range 20 {
			gcratest.MustTake(t, r, hourly(fmt.Sprint("user", i), 10), hourly(fmt.Sprint("address", i), 10))
		}
		if entries := server.Client().ACLLog(t.Context(), 10).Val(); len(entries) > 0 {
			t.Errorf("got %+v in the ACL log; want nothing", entries)
		}
	})
}

// A server that becomes a cluster, as when a service is moved to a larger plan, is sent to by subject from then on.
func TestServerBecomesACluster(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	r := openStore(t, "redis://"+proxy.Addr, config{Timeout: patience})
	if err := r.Ping(t.Context()); err != nil || kind(r) != redisstats.OneKeyspace {
		t.Fatalf("got %v, kind %q; want no error, %q", err, kind(r), redisstats.OneKeyspace)
	}

	// As long as all callers ask for one subject, the store does not notice.
	proxy.Move(hiddenCluster(t).Addr)
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

// A proxy that runs a script where its first key is, and respects hash tags, is sent to by subject.
func TestProxyThatRoutesByHashTag(t *testing.T) {
	t.Parallel()
	url := routing(t, byTag, redistest.Start(t), redistest.Start(t))
	log := new(diagtest.Text)
	r := openStore(t, url, config{Timeout: patience, DenialTTL: -1, Logger: log.Logger()})
	exactlyTwenty(t, r, 0)
	if kind(r) != redisstats.BySubject {
		t.Errorf("got kind %q; want %q", kind(r), redisstats.BySubject)
	}
	exactlyTwenty(t, r, 1)
	if err := r.Ping(t.Context()); err != nil {
		t.Errorf("Ping: %v", err)
	}
	if lines := log.Lines(""); len(lines) > 0 {
		t.Errorf("got log lines %q; want none", lines)
	}
}

// A proxy that has an error of its own for a script whose keys have different tags is sent to by subject.
func TestProxyWithAnErrorForDifferentTags(t *testing.T) {
	t.Parallel()
	var tests atomic.Int64
	url := routing(t, func(command []string) int {
		if name := strings.ToLower(command[0]); name != "eval" && name != "evalsha" {
			return 0
		}
		keys, _ := strconv.Atoi(command[2])
		for _, key := range command[3 : 3+keys] {
			if tag, _, _ := strings.Cut(key, "}"); !strings.HasPrefix(command[3], tag) {
				tests.Add(1)
				return -1
			}
		}

		return 0
	}, redistest.Start(t))

	r := openStore(t, url, config{Timeout: patience})
	for i := range 5 {
		gcratest.MustTake(t, r, hourly(fmt.Sprint("user", i), 10), hourly(fmt.Sprint("address", i), 10))
	}
	settled(t, r)
	if kind(r) != redisstats.BySubject {
		t.Errorf("got kind %q; want %q", kind(r), redisstats.BySubject)
	}
	exactlyTwenty(t, r, 0)
	if n := tests.Load(); n > 4 {
		t.Errorf("got %d scripts for several tags; want at most 4, those of the tests", n)
	}
}

// A proxy that does not respect hash tags runs scripts away from their keys. The store does not use it, says so, and
// tests it again each minute.
func TestProxyThatIgnoresHashTags(t *testing.T) {
	t.Parallel()
	var good atomic.Bool
	url := routing(t, func(command []string) int {
		if good.Load() {
			return 0
		}
		return byKey(command)
	}, redistest.Start(t), redistest.Start(t))

	log := new(diagtest.Text)
	r := openStore(t, url, config{Timeout: patience, Logger: log.Logger()})
	var later atomic.Int64
	r.SetClock(func() time.Time { return time.Now().Add(time.Duration(later.Load())) })
	for range 2 { // the two tests
		gcratest.MustTake(t, r, plenty)
		redistest.Eventually(t, patience, "the end of the batch", func() bool { return r.Stats().Batches > 0 })
	}

	if kind(r) != redisstats.Unusable {
		t.Errorf("got kind %q after two calls; want %q", kind(r), redisstats.Unusable)
	}

	const sentence = "runs scripts away from their keys: keys with one hash tag are on different servers; let the proxy choose the server"
	if _, err := gcra.Take(t.Context(), r, plenty); err == nil || !strings.Contains(err.Error(), "different servers") {
		t.Errorf("Take: got %v; want an error that says why", err)
	}
	if err := r.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), sentence) {
		t.Errorf("Ping: got %v; want %q", err, sentence)
	}
	redistest.Eventually(t, patience, "the line", func() bool {
		lines := log.Lines("code=redis-keys-apart ")
		return len(lines) == 1 && strings.Contains(lines[0], "level=ERROR") && strings.Contains(lines[0], "help=")
	})

	breakerOpens(t, r)
	if reason := r.Stats().Servers[0].Reason; !strings.HasPrefix(reason, sentence) {
		t.Errorf("got reason %q; want %q", reason, sentence)
	}

	good.Store(true)
	later.Store(int64(2 * time.Minute))
	redistest.Eventually(t, patience, "the store to answer", func() bool { return answers(r) })
	if kind(r) != redisstats.OneKeyspace {
		t.Errorf("got kind %q with another proxy; want %q", kind(r), redisstats.OneKeyspace)
	}
}

// A service that changes behind its address, and answers no error that says so, is noticed by the test of the next minute.
func TestServiceThatChanges(t *testing.T) {
	t.Parallel()
	one := func([]string) int { return 0 }
	for _, tt := range []struct {
		name          string
		before, after func(command []string) int
		from, to      redisstats.Kind
	}{
		{"a proxy gets a second server", one, byTag, redisstats.OneKeyspace, redisstats.BySubject},
		{"a proxy without hash tags gets a second server", one, byKey, redisstats.OneKeyspace, redisstats.Unusable},
		{"a proxy loses its second server", byTag, one, redisstats.BySubject, redisstats.OneKeyspace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var changed atomic.Bool
			var tests atomic.Int64 // commands of tests
			url := routing(t, func(command []string) int {
				if strings.Contains(firstKey(command), "{~test") {
					tests.Add(1)
				}
				if changed.Load() {
					return tt.after(command)
				}
				return tt.before(command)
			}, redistest.Start(t), redistest.Start(t))

			r := openStore(t, url, config{Timeout: patience, DenialTTL: -1, Logger: quiet})
			var later atomic.Int64
			r.SetClock(func() time.Time { return time.Now().Add(time.Duration(later.Load())) })

			exactlyTwenty(t, r, 0)
			if kind(r) != tt.from {
				t.Fatalf("got kind %q; want %q", kind(r), tt.from)
			}
			before := tests.Load()
			exactlyTwenty(t, r, 1)
			if n := tests.Load() - before; n > 0 {
				t.Errorf("got %d commands of a test within the minute; want none", n)
			}

			changed.Store(true)
			later.Store(int64(61 * time.Second))
			redistest.Eventually(t, patience, "the new kind", func() bool {
				_ = answers(r) // not if keys are apart
				return kind(r) == tt.to
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

// Keys that are evicted in the middle of a test show nothing.
func TestKindWhileKeysAreEvicted(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	do(t, server, fmt.Sprint("config set maxmemory ", redistest.Stat(t, server.Client(), "memory", "used_memory:")+200_000))
	filler := server.Client()
	for i := range 5000 {
		_ = filler.Set(t.Context(), fmt.Sprint("filler ", i), strings.Repeat("x", 100), 0).Err() // may be out of memory
	}

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			_ = filler.Set(ctx, fmt.Sprint("filler ", i), strings.Repeat("x", 1000), 0).Err()
		}
	}()

	client, known := patientClient(t, server.Addr), 0
	for range 100 {
		r := newStore(t, client, config{Logger: quiet})
		for range 4 {
			_ = answers(r)
		}
		_ = r.Ping(t.Context())
		if neverWrong(t, r) {
			known++
		}
	}

	stop()
	<-done
	evicted := redistest.Stat(t, filler, "stats", "evicted_keys:")
	if evicted == 0 {
		t.Error("no key was evicted")
	}
	t.Logf("%d keys evicted; %d of 100 stores know that it is one keyspace", evicted, known)
}

// An endpoint that sends commands to another server from some moment on, as in a failover that loses writes, is one
// keyspace before and after.
func TestKindInAFailover(t *testing.T) {
	t.Parallel()
	var left atomic.Int64 // commands until the failover
	url := routing(t, func([]string) int {
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

// An endpoint whose replica answers reads is one keyspace, however far the replica lags.
func TestKindWithAReplicaThatAnswersReads(t *testing.T) {
	master, replica := redistest.Start(t), redistest.Start(t)
	url := routing(t, func(command []string) int {
		if name := strings.ToLower(command[0]); name == "get" || name == "mget" {
			return 1
		}
		return 0
	}, master, replica) // which gets nothing: the longest lag
	r := openStore(t, url, config{Timeout: patience})
	for range 5 {
		gcratest.MustTake(t, r, plenty)
		neverWrong(t, r)
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
