package ratelimitotel_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// one returns the value of a metric with a single series, without attributes.
func one(t *testing.T, reader metric.Reader, name string) float64 {
	t.Helper()
	all := read(t, reader, name)
	n, ok := all[""]
	if !ok || len(all) != 1 {
		t.Fatalf("%s: got %v; want one series without attributes", name, all)
	}
	return n
}

// breakers returns the state of each server's breaker.
func breakers(t *testing.T, reader metric.Reader) map[string]string {
	t.Helper()
	states := map[string]string{}
	for attributes, n := range read(t, reader, "ratelimit.redis.breaker.status") {
		is := map[string]string{}
		for kv := range strings.FieldsSeq(attributes) {
			key, value, _ := strings.Cut(kv, "=")
			is[key] = value
		}

		server := is["server.address"]
		if port := is["server.port"]; port != "" {
			server += ":" + port
		}

		if n > 0 {
			states[server] += is["ratelimit.redis.breaker.state"]
		}
	}
	return states
}

// A store that limiters share is counted once; different stores are added up.
func TestStoresAreCountedOnce(t *testing.T) {
	policy := middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(1)}
	stats := func(batches int64, servers ...redisstats.ServerState) redisstats.Stats {
		return redisstats.Stats{
			Batches: batches, Operations: 2 * batches, FailedBatches: 3 * batches, CachedDenials: 4 * batches,
			LocalUnits: 5 * batches, ReportedUnits: 6 * batches, LostUnits: 7 * batches,
			Instances: int(batches),
			BatchTime: time.Duration(batches) * time.Second, Servers: servers,
		}
	}

	a := &counted{doubles.NewStore(), stats(1, redisstats.ServerState{Server: "a:6379", Breaker: redisstats.BreakerOpen, Reason: "does not answer"}, redisstats.ServerState{Server: "/run/redis.sock", Breaker: redisstats.BreakerHalfOpen})}
	b := &counted{doubles.NewStore(), stats(10, redisstats.ServerState{Server: "[::1]:6380", Breaker: redisstats.BreakerClosed}, redisstats.ServerState{})}
	reader := instrument(t, limiter(t, a, policy), limiter(t, doubles.NewStore(), policy), limiter(t, b, policy), limiter(t, a, policy))

	for name, want := range map[string]float64{
		"ratelimit.redis.batches":        11,
		"ratelimit.redis.operations":     22,
		"ratelimit.redis.failed_batches": 33,
		"ratelimit.redis.cached_denials": 44,
		"ratelimit.redis.local_units":    55,
		"ratelimit.redis.reported_units": 66,
		"ratelimit.redis.lost_units":     77,
		"ratelimit.redis.batch.duration": 11,
		"ratelimit.redis.instances":      10, // the largest
	} {
		if got := one(t, reader, name); got != want {
			t.Errorf("%s: got %v; want %v", name, got, want)
		}
	}

	want := map[string]string{"a:6379": "open", "/run/redis.sock": "half_open", "::1:6380": "closed", "unknown": "closed"}
	if got := breakers(t, reader); !maps.Equal(got, want) {
		t.Errorf("got breakers %v; want %v", got, want)
	}
}

// A store may have a type that is not comparable.
func TestStoreNotComparable(t *testing.T) {
	type tagged struct {
		*counted
		tags []string
	}
	s := tagged{&counted{doubles.NewStore(), redisstats.Stats{Batches: 1}}, nil}
	policy := middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(1)}
	reader := instrument(t, limiter(t, s, policy), limiter(t, s, policy))
	if got := one(t, reader, "ratelimit.redis.batches"); got != 2 {
		t.Errorf("got %v batches; want 2, as the stores cannot be compared", got)
	}
}

// Limiters on a store without statistics have none of their metrics.
func TestNoStatistics(t *testing.T) {
	l := limiter(t, doubles.NewStore(), middleware.Policy{Name: "user", Key: key("k"), Limit: gcra.PerHour(1)})
	reader := instrument(t, l)
	l.Decide(get("/"))
	for _, m := range collect(t, reader) {
		if strings.HasPrefix(m.Name, "ratelimit.redis.") {
			t.Errorf("got %s; want no statistics of a store that has none", m.Name)
		}
	}
}
