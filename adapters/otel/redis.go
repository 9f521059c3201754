package ratelimitotel

import (
	"cmp"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// counting is a store that tells what it has done, as [redisstore.Store] does.
type counting interface{ Stats() redisstore.Stats }

// countingStores are those of the limiters, each once.
func countingStores(limiters []*middleware.Limiter) (stores []counting) {
	for _, l := range limiters {
		s, ok := l.Store().(counting)
		if !ok {
			continue
		}
		same := func(other counting) bool { return reflect.ValueOf(s).Comparable() && s == other }
		if !slices.ContainsFunc(stores, same) {
			stores = append(stores, s)
		}
	}
	return stores
}

// redis reports what stores have done.
type redis struct {
	stores []counting

	trips, carried, failures, mirrored metric.Int64ObservableCounter
	tripTime                           metric.Float64ObservableCounter
	breakers                           metric.Int64ObservableUpDownCounter
}

const breakerKey = attribute.Key("ratelimit.redis.breaker.state")

var breakerStates = [...]redisstore.BreakerState{redisstore.BreakerClosed, redisstore.BreakerHalfOpen, redisstore.BreakerOpen}

// newRedis makes the metrics of redisstore.Stats.
func newRedis(meter metric.Meter, stores []counting) (*redis, error) {
	rs := &redis{stores: stores}
	for _, c := range []struct {
		counter                 *metric.Int64ObservableCounter
		name, unit, description string
	}{
		{&rs.trips, "ratelimit.redis.batches", "{batch}", "Batches that Redis answered."},
		{&rs.carried, "ratelimit.redis.operations", "{operation}", "Admissions and refunds in the batches that Redis answered."},
		{&rs.failures, "ratelimit.redis.failed_batches", "{batch}", "Batches that were not answered, or with an outage."},
		{&rs.mirrored, "ratelimit.redis.cached_denials", "{operation}", "Admissions that were denied without asking Redis."},
	} {
		var err error
		*c.counter, err = meter.Int64ObservableCounter(c.name, metric.WithUnit(c.unit), metric.WithDescription(c.description))
		if err != nil {
			return nil, err
		}
	}
	var err error
	rs.tripTime, err = meter.Float64ObservableCounter("ratelimit.redis.batch.duration",
		metric.WithUnit("s"),
		metric.WithDescription("What the batches that Redis answered took together."))
	if err != nil {
		return nil, err
	}
	rs.breakers, err = meter.Int64ObservableUpDownCounter("ratelimit.redis.breaker.status",
		metric.WithUnit("{breaker}"),
		metric.WithDescription("1 for the state that the breaker of a server is in, 0 for the others."))
	return rs, err
}

// collect tells the counts of all stores together.
func (rs *redis) collect(to metric.Observer) {
	var sum redisstore.Stats
	for _, store := range rs.stores {
		s := store.Stats()
		sum.Batches += s.Batches
		sum.Operations += s.Operations
		sum.BatchTime += s.BatchTime
		sum.FailedBatches += s.FailedBatches
		sum.CachedDenials += s.CachedDenials
		sum.Servers = append(sum.Servers, s.Servers...)
	}
	to.ObserveInt64(rs.trips, sum.Batches)
	to.ObserveInt64(rs.carried, sum.Operations)
	to.ObserveInt64(rs.failures, sum.FailedBatches)
	to.ObserveInt64(rs.mirrored, sum.CachedDenials)
	to.ObserveFloat64(rs.tripTime, sum.BatchTime.Seconds())

	breakers := map[redisstore.ServerState]int64{} // of all stores, which may have servers in common
	for _, server := range sum.Servers {
		for _, state := range breakerStates {
			breakers[redisstore.ServerState{Server: server.Server, Breaker: state}] += 0
		}
		breakers[server]++
	}
	for b, n := range breakers {
		to.ObserveInt64(rs.breakers, n, metric.WithAttributes(append(serverAttributes(b.Server),
			breakerKey.String(strings.ReplaceAll(b.Breaker.String(), "-", "_")))...))
	}
}

// serverAttributes are those of the semantic conventions: the host and, where
// there is one, the port.
func serverAttributes(server string) []attribute.KeyValue {
	if host, port, err := net.SplitHostPort(server); err == nil {
		if n, err := strconv.Atoi(port); err == nil {
			return []attribute.KeyValue{attribute.String("server.address", host), attribute.Int("server.port", n)}
		}
	}
	return []attribute.KeyValue{attribute.String("server.address", cmp.Or(server, "unknown"))}
}
