package ratelimitotel

import (
	"cmp"
	"errors"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// statsStores returns the limiters' stores that have statistics, each once.
func statsStores(limiters []*middleware.Limiter) (stores []redisstats.Store) {
	for _, l := range limiters {
		s, ok := l.Store().(redisstats.Store)
		if !ok {
			continue
		}
		same := func(other redisstats.Store) bool { return reflect.ValueOf(s).Comparable() && s == other }
		if !slices.ContainsFunc(stores, same) {
			stores = append(stores, s)
		}
	}
	return stores
}

// redis reports the statistics of stores, if there are any.
type redis struct {
	stores      []redisstats.Store
	observables []metric.Observable // all of the following

	counters  []metric.Int64ObservableCounter // of statistics
	batchTime metric.Float64ObservableCounter
	instances metric.Int64ObservableGauge
	breakers  metric.Int64ObservableUpDownCounter
}

// statistics are the counters of redisstats.Stats.
var statistics = []struct {
	name, unit, description string
	of                      func(*redisstats.Stats) int64
}{
	{"batches", "{batch}", "Batches that Redis answered.", func(s *redisstats.Stats) int64 { return s.Batches }},
	{"operations", "{operation}", "Admissions and refunds in the batches that Redis answered.", func(s *redisstats.Stats) int64 { return s.Operations }},
	{"failed_batches", "{batch}", "Batches without an answer, or with an outage as the answer.", func(s *redisstats.Stats) int64 { return s.FailedBatches }},
	{"cached_denials", "{operation}", "Admissions that the store denied without a call of Redis.", func(s *redisstats.Stats) int64 { return s.CachedDenials }},
	{"local_units", "{unit}", "Units that this server has granted alone, as Redis did not answer or a policy failed.", func(s *redisstats.Stats) int64 { return s.LocalUnits }},
	{"reported_units", "{unit}", "Of local_units, those that were charged in Redis later.", func(s *redisstats.Stats) int64 { return s.ReportedUnits }},
	{"lost_units", "{unit}", "Of local_units, those that were given up.", func(s *redisstats.Stats) int64 { return s.LostUnits }},
}

const breakerKey = attribute.Key("ratelimit.redis.breaker.state")

var breakerStates = [...]redisstats.BreakerState{redisstats.BreakerClosed, redisstats.BreakerHalfOpen, redisstats.BreakerOpen}

// newRedis creates the metrics of redisstats.Stats.
func newRedis(meter metric.Meter, stores []redisstats.Store) (*redis, error) {
	rs := &redis{stores: stores}
	var errs [3]error
	rs.batchTime, errs[0] = meter.Float64ObservableCounter("ratelimit.redis.batch.duration",
		metric.WithUnit("s"),
		metric.WithDescription("Total time of the batches that Redis answered."))

	rs.instances, errs[1] = meter.Int64ObservableGauge("ratelimit.redis.instances",
		metric.WithUnit("{server}"),
		metric.WithDescription("Servers that share the limits, as counted last; 0 before the first count. The largest count of several stores."))

	// No gauge: stores that share a server add up.
	rs.breakers, errs[2] = meter.Int64ObservableUpDownCounter("ratelimit.redis.breaker.status",
		metric.WithUnit("{breaker}"),
		metric.WithDescription("1 for the state of a server's breaker, 0 for the other states."))

	rs.observables = []metric.Observable{rs.batchTime, rs.instances, rs.breakers}
	for _, s := range statistics {
		c, err := meter.Int64ObservableCounter("ratelimit.redis."+s.name, metric.WithUnit(s.unit), metric.WithDescription(s.description))
		if err != nil {
			return nil, err
		}
		rs.counters, rs.observables = append(rs.counters, c), append(rs.observables, c)
	}
	return rs, errors.Join(errs[:]...)
}

// collect reports the sums of all stores, and the largest of their counts of instances.
func (rs *redis) collect(to metric.Observer) {
	if len(rs.stores) == 0 {
		return
	}

	sums := make([]int64, len(statistics))
	var batchTime time.Duration
	var instances int
	breakers := map[redisstats.ServerState]int64{} // stores may share servers
	for _, store := range rs.stores {
		stats := store.Stats()
		for i, s := range statistics {
			sums[i] += s.of(&stats)
		}
		batchTime += stats.BatchTime
		instances = max(instances, stats.Instances)

		for _, server := range stats.Servers {
			for _, state := range breakerStates {
				breakers[redisstats.ServerState{Server: server.Server, Breaker: state}] += 0
			}
			breakers[redisstats.ServerState{Server: server.Server, Breaker: cmp.Or(server.Breaker, redisstats.BreakerClosed)}]++ // its reason is unbounded
		}
	}

	for i, sum := range sums {
		to.ObserveInt64(rs.counters[i], sum)
	}
	to.ObserveFloat64(rs.batchTime, batchTime.Seconds())
	to.ObserveInt64(rs.instances, int64(instances))

	for b, n := range breakers {
		to.ObserveInt64(rs.breakers, n, metric.WithAttributes(append(serverAttributes(b.Server),
			breakerKey.String(strings.ReplaceAll(string(b.Breaker), "-", "_")))...))
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
