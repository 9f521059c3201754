package ratelimitotel_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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

// report reports everything that can be reported.
func report(t *testing.T, provider *metric.MeterProvider, l *middleware.Limiter) {
	t.Helper()
	if err := ratelimitotel.InstrumentWith(provider, l); err != nil {
		t.Fatal(err)
	}
	if err := ratelimitotel.InstrumentOverrides(provider, inForce{2, 3}); err != nil {
		t.Fatal(err)
	}
}

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

var (
	sample = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? \S+$`)
	label  = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
)

// A Prometheus scrapes the names that dashboards use and the labels of policies, outcomes
// and servers, but no subject.
func TestPrometheusText(t *testing.T) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		t.Fatal(err)
	}

	l, use := busy(t)
	report(t, metric.NewMeterProvider(metric.WithReader(reader)), l)
	use()

	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}

	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(body), "secret") {
		t.Errorf("the metrics contain a subject or a part of a request:\n%s", body)
	}

	values := map[string]map[string]bool{} // of each label
	names := map[string]bool{}
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "target_info") {
			continue
		}
		found := sample.FindStringSubmatch(line)
		if found == nil {
			t.Fatalf("got %q; want a sample", line)
		}

		names[found[1]] = true
		for _, kv := range label.FindAllStringSubmatch(found[2], -1) {
			if values[kv[1]] == nil {
				values[kv[1]] = map[string]bool{}
			}
			values[kv[1]][kv[2]] = true
		}
	}

	delete(values, "le") // the bounds of the histogram
	if got, want := fmt.Sprint(slices.Sorted(maps.Keys(names))), fmt.Sprint([]string{
		"ratelimit_decision_duration_seconds_bucket",
		"ratelimit_decision_duration_seconds_count",
		"ratelimit_decision_duration_seconds_sum",
		"ratelimit_decisions_total",
		"ratelimit_overrides",
		"ratelimit_quota_near_end_total",
		"ratelimit_redis_batch_duration_seconds_total",
		"ratelimit_redis_batches_total",
		"ratelimit_redis_breaker_status",
		"ratelimit_redis_cached_denials_total",
		"ratelimit_redis_failed_batches_total",
		"ratelimit_redis_instances",
		"ratelimit_redis_local_units_total",
		"ratelimit_redis_lost_units_total",
		"ratelimit_redis_operations_total",
		"ratelimit_redis_reported_units_total",
	}); got != want {
		t.Errorf("got names %s\nwant %s", got, want)
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
