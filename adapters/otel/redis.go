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

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// statsStores returns the limiters' stores that have statistics, each once.
func statsStores(limiters []*middleware.Limiter) (stores []gcra.StatsStore) {
	for _, l := range limiters {
		s, ok := l.Store().(gcra.StatsStore)
		if !ok {
			continue
		}
		same := func(other gcra.StatsStore) bool { return reflect.ValueOf(s).Comparable() && s == other }
		if !slices.ContainsFunc(stores, same) {
			stores = append(stores, s)
		}
	}
	return stores
}

// redis reports the statistics of stores.
type redis struct {
	stores []gcra.StatsStore

	batches, operations, failedBatches, cachedDenials metric.Int64ObservableCounter
	localUnits, paidUnits, unpaidUnits                metric.Int64ObservableCounter
	batchTime                                         metric.Float64ObservableCounter
	breakers                                          metric.Int64ObservableUpDownCounter
	instances                                         metric.Int64ObservableGauge
}

const breakerKey = attribute.Key("ratelimit.redis.breaker.state")

var breakerStates = [...]gcra.BreakerState{gcra.BreakerClosed, gcra.BreakerHalfOpen, gcra.BreakerOpen}

// newRedis creates the metrics of gcra.Stats.
func newRedis(meter metric.Meter, stores []gcra.StatsStore) (*redis, error) {
	rs := &redis{stores: stores}
	for _, c := range []struct {
		counter                 *metric.Int64ObservableCounter
		name, unit, description string
	}{
		{&rs.batches, "ratelimit.redis.batches", "{batch}", "Batches that Redis answered."},
		{&rs.operations, "ratelimit.redis.operations", "{operation}", "Admissions and refunds in the batches that Redis answered."},
		{&rs.failedBatches, "ratelimit.redis.failed_batches", "{batch}", "Batches without an answer, or with an outage as the answer."},
		{&rs.cachedDenials, "ratelimit.redis.cached_denials", "{operation}", "Admissions that were denied without a call of Redis."},
		{&rs.localUnits, "ratelimit.redis.local_units", "{unit}", "Units that this server has granted alone, while Redis did not answer."},
		{&rs.paidUnits, "ratelimit.redis.paid_units", "{unit}", "Of local_units, those that were charged in Redis later."},
		{&rs.unpaidUnits, "ratelimit.redis.unpaid_units", "{unit}", "Of local_units, those for which there was no room to be charged later."},
	} {
		var err error
		*c.counter, err = meter.Int64ObservableCounter(c.name, metric.WithUnit(c.unit), metric.WithDescription(c.description))
		if err != nil {
			return nil, err
		}
	}

	var err error
	rs.batchTime, err = meter.Float64ObservableCounter("ratelimit.redis.batch.duration",
		metric.WithUnit("s"),
		metric.WithDescription("Total time of the batches that Redis answered."))
	if err != nil {
		return nil, err
	}

	rs.instances, err = meter.Int64ObservableGauge("ratelimit.redis.instances",
		metric.WithUnit("{server}"),
		metric.WithDescription("Servers that share the limits, as counted last; 0 before the first count. The largest count of several stores."))
	if err != nil {
		return nil, err
	}

	rs.breakers, err = meter.Int64ObservableUpDownCounter("ratelimit.redis.breaker.status",
		metric.WithUnit("{breaker}"),
		metric.WithDescription("1 for the state of a server's breaker, 0 for the other states."))
	return rs, err
}

// collect reports the sums of all stores, and the largest of their counts of instances.
func (rs *redis) collect(to metric.Observer) {
	var sum gcra.Stats
	for _, store := range rs.stores {
		s := store.Stats()
		sum.Batches += s.Batches
		sum.Requests += s.Requests
		sum.BatchTime += s.BatchTime
		sum.FailedBatches += s.FailedBatches
		sum.CachedDenials += s.CachedDenials
		sum.LocalUnits += s.LocalUnits
		sum.PaidUnits += s.PaidUnits
		sum.UnpaidUnits += s.UnpaidUnits
		sum.Instances = max(sum.Instances, s.Instances)
		sum.Servers = append(sum.Servers, s.Servers...)
	}

	to.ObserveInt64(rs.batches, sum.Batches)
	to.ObserveInt64(rs.operations, sum.Requests)
	to.ObserveInt64(rs.failedBatches, sum.FailedBatches)
	to.ObserveInt64(rs.cachedDenials, sum.CachedDenials)
	to.ObserveInt64(rs.localUnits, sum.LocalUnits)
	to.ObserveInt64(rs.paidUnits, sum.PaidUnits)
	to.ObserveInt64(rs.unpaidUnits, sum.UnpaidUnits)
	to.ObserveInt64(rs.instances, int64(sum.Instances))
	to.ObserveFloat64(rs.batchTime, sum.BatchTime.Seconds())

	breakers := map[gcra.ServerState]int64{} // stores may share servers
	for _, server := range sum.Servers {
		for _, state := range breakerStates {
			breakers[gcra.ServerState{Server: server.Server, Breaker: state}] += 0
		}
		breakers[gcra.ServerState{Server: server.Server, Breaker: server.Breaker}]++ // its reason is unbounded
	}
	for b, n := range breakers {
		to.ObserveInt64(rs.breakers, n, metric.WithAttributes(append(serverAttributes(b.Server),
			breakerKey.String(strings.ReplaceAll(b.Breaker.String(), "-", "_")))...))
	}
}

// serverAttributes returns the host and, if there is one, the port, as in the semantic
// conventions.
func serverAttributes(server string) []attribute.KeyValue {
	if host, port, err := net.SplitHostPort(server); err == nil {
		if n, err := strconv.Atoi(port); err == nil {
			return []attribute.KeyValue{attribute.String("server.address", host), attribute.Int("server.port", n)}
		}
	}
	return []attribute.KeyValue{attribute.String("server.address", cmp.Or(server, "unknown"))}
}
