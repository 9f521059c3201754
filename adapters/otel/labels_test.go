package ratelimitotel_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	ratelimitotel "github.com/seed-e377111c/ratelimit/adapters/otel"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// inForce are overrides.
type inForce struct{ limits, bans int }

func (o inForce) InForce() (limits, bans int) { return o.limits, o.bans }

// busy returns a limiter, and a function that makes it decide with every outcome about
// subjects that must not be reported.
func busy(t *testing.T) (l *middleware.Limiter, use func()) {
	secret := func(*http.Request) (string, error) { return "secret-subject", nil }
	s := doubles.NewStore()
	stats := redisstats.Stats{Servers: []redisstats.ServerState{{Server: "redis.example:6379", Breaker: redisstats.BreakerClosed}}}
	l = limiter(t, &counted{s, stats},
		middleware.Policy{Name: "tight", Key: secret, Limit: gcra.PerHour(1), Shadow: true},
		middleware.Policy{Name: "slow", Key: secret, Limit: gcra.PerHour(1), MaxDelay: 90 * time.Minute},
		middleware.Policy{Name: "user", Key: secret, Limit: gcra.PerHour(100), Routes: []string{"/secret-path"}},
		middleware.Policy{Name: "month", Key: secret, Limit: gcra.Quota(4, gcra.Monthly)})
	return l, func() {
		for _, down := range []bool{false, false, false, true} {
			s.SetDown(down)
			r := get("/secret-path?token=secret-token")
			r.Header.Set("Authorization", "secret-header")
			l.Decide(r)
		}
	}
}

// A Prometheus scrapes the names that dashboards use and the labels of policies, outcomes
// and servers, but no subject.
func TestPrometheusText(t *testing.T) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		t.Fatal(err)
	}

	l, use := busy(t)
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	if err := errors.Join(ratelimitotel.Instrument(provider, l), ratelimitotel.InstrumentOverrides(provider, inForce{2, 3})); err != nil {
		t.Fatal(err)
	}
	use()

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(families); strings.Contains(text, "secret") {
		t.Errorf("the metrics contain a subject or a part of a request:\n%s", text)
	}

	var names []string
	values := map[string]map[string]bool{} // of each label
	for _, family := range families {
		if family.GetName() == "target_info" {
			continue
		}
		names = append(names, family.GetName())
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if values[label.GetName()] == nil {
					values[label.GetName()] = map[string]bool{}
				}
				values[label.GetName()][label.GetValue()] = true
			}
		}
	}

	if want := []string{
		"ratelimit_decision_duration_seconds", "ratelimit_decisions_total", "ratelimit_overrides", "ratelimit_quota_near_end_total",
		"ratelimit_redis_batch_duration_seconds_total", "ratelimit_redis_batches_total", "ratelimit_redis_breaker_status",
		"ratelimit_redis_cached_denials_total", "ratelimit_redis_failed_batches_total", "ratelimit_redis_instances",
		"ratelimit_redis_local_units_total", "ratelimit_redis_lost_units_total", "ratelimit_redis_operations_total",
		"ratelimit_redis_reported_units_total",
	}; !slices.Equal(names, want) {
		t.Errorf("got names %q\nwant %q", names, want)
	}

	want := map[string]string{
		"ratelimit_policy":              "[month slow tight user]",
		"ratelimit_override_kind":       "[ban limit]",
		"ratelimit_outcome":             "[allowed degraded delayed denied shadow_denied]",
		"ratelimit_redis_breaker_state": "[closed half_open open]",
		"server_address":                "[redis.example]",
		"server_port":                   "[6379]",
	}

	got := map[string]string{}
	for name, of := range values {
		got[name] = fmt.Sprint(slices.Sorted(maps.Keys(of)))
	}
	if !maps.Equal(got, want) {
		t.Errorf("got labels %v; want %v", got, want)
	}
}
