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
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	ratelimitotel "github.com/seed-e377111c/ratelimit/adapters/otel"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// fixed lists all metrics, with their units and the attributes of their series.
var fixed = []string{
	"ratelimit.decision.duration s histogram [ratelimit.outcome]",
	"ratelimit.decisions {decision} counter [ratelimit.outcome ratelimit.policy]",
	"ratelimit.overrides {override} gauge [ratelimit.override.kind]",
	"ratelimit.quota.near_end {request} counter [ratelimit.policy]",
	"ratelimit.redis.batch.duration s counter []",
	"ratelimit.redis.batches {batch} counter []",
	"ratelimit.redis.breaker.status {breaker} gauge [ratelimit.redis.breaker.state server.address server.port]",
	"ratelimit.redis.cached_denials {operation} counter []",
	"ratelimit.redis.failed_batches {batch} counter []",
	"ratelimit.redis.instances {server} gauge []",
	"ratelimit.redis.local_units {unit} counter []",
	"ratelimit.redis.lost_units {unit} counter []",
	"ratelimit.redis.operations {operation} counter []",
	"ratelimit.redis.reported_units {unit} counter []",
}

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

// shape returns a metric as a line of fixed.
func shape(t *testing.T, m metricdata.Metrics) string {
	t.Helper()
	kind := "histogram"
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		kind = map[bool]string{true: "counter", false: "gauge"}[data.IsMonotonic]
	case metricdata.Gauge[int64]:
		kind = "gauge"
	case metricdata.Sum[float64]:
		kind = map[bool]string{true: "counter", false: "gauge"}[data.IsMonotonic]
	}

	var keys []string
	for attributes := range series(m) {
		var here []string
		for kv := range strings.FieldsSeq(attributes) {
			name, _, _ := strings.Cut(kv, "=")
			here = append(here, name)
		}

		if keys != nil && !slices.Equal(keys, here) {
			t.Errorf("%s: got series with %q and with %q; want the same attributes in all", m.Name, keys, here)
		}
		keys = here
	}
	return fmt.Sprintf("%s %s %s %v", m.Name, m.Unit, kind, keys)
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
			s.Fails.Store(down)
			r := get("/secret-path?token=secret-token")
			r.Header.Set("Authorization", "secret-header")
			l.Decide(r)
		}
	}
}

func TestLabelsAreFixed(t *testing.T) {
	l, use := busy(t)
	reader := metric.NewManualReader()
	report(t, metric.NewMeterProvider(metric.WithReader(reader)), l)
	use()

	var got []string
	for _, m := range collect(t, reader) {
		got = append(got, shape(t, m))
	}
	if slices.Sort(got); !slices.Equal(got, fixed) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(fixed, "\n"))
	}

	for name, want := range map[string]int{
		"ratelimit.decision.duration":    4,     // outcomes of requests: all but shadow_denied, which a delay hides
		"ratelimit.decisions":            4 * 5, // policies and outcomes
		"ratelimit.redis.breaker.status": 3,
	} {
		if got := read(t, reader, name); len(got) != want {
			t.Errorf("%s: got %d series; want %d: %v", name, len(got), want, got)
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
