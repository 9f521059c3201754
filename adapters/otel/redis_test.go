package ratelimitotel_test

import (
	"slices"
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

	var states []string
	for attributes, n := range read(t, reader, "ratelimit.redis.breaker.status") {
		if n > 0 {
			states = append(states, strings.TrimPrefix(attributes, "ratelimit.redis.breaker.state="))
		}
	}
	slices.Sort(states)
	if want := []string{
		"closed server.address=::1 server.port=6380", "closed server.address=unknown",
		"half_open server.address=/run/redis.sock", "open server.address=a server.port=6379",
	}; !slices.Equal(states, want) {
		t.Errorf("got breakers %q; want %q", states, want)
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
