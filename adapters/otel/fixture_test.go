package ratelimitotel_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	ratelimitotel "github.com/seed-e377111c/ratelimit/adapters/otel"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// counted is a store with Stats, as a redisstore.Store is.
type counted struct {
	gcra.Store
	stats redisstats.Stats
}

func (c *counted) Stats() redisstats.Stats { return c.stats }

func key(s string) func(*http.Request) (string, error) {
	return func(*http.Request) (string, error) { return s, nil }
}

func keyFails(*http.Request) (string, error) { return "", errors.New("no key today") }

func get(target string) *http.Request { return httptest.NewRequest(http.MethodGet, target, nil) }

func limiter(t testing.TB, s gcra.Store, policies ...middleware.Policy) *middleware.Limiter {
	t.Helper()
	l, err := middleware.New(middleware.Config{Store: s}, policies...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// instrument instruments the limiters, and returns a reader of their metrics.
func instrument(t testing.TB, limiters ...*middleware.Limiter) *metric.ManualReader {
	t.Helper()
	reader := metric.NewManualReader()
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	if err := ratelimitotel.Instrument(provider, limiters...); err != nil {
		t.Fatal(err)
	}
	return reader
}

func collect(t testing.TB, reader metric.Reader) []metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.ScopeMetrics) == 0 {
		return nil
	}
	if len(all.ScopeMetrics) != 1 || all.ScopeMetrics[0].Scope.Name != "github.com/seed-e377111c/ratelimit/adapters/otel" {
		t.Fatalf("got %d scopes, the first %+v; want that of the adapter", len(all.ScopeMetrics), all.ScopeMetrics[0].Scope)
	}
	return all.ScopeMetrics[0].Metrics
}

// series returns the values of a metric by attributes, written "a=1 b=2"; for a histogram
// the counts.
func series(m metricdata.Metrics) map[string]float64 {
	all := map[string]float64{}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			all[text(p.Attributes)] = float64(p.Value)
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			all[text(p.Attributes)] = float64(p.Value)
		}
	case metricdata.Sum[float64]:
		for _, p := range data.DataPoints {
			all[text(p.Attributes)] = p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			all[text(p.Attributes)] = float64(p.Count)
		}
	default:
		panic(fmt.Sprintf("%s is a %T", m.Name, m.Data))
	}
	return all
}

func text(set attribute.Set) string {
	var words []string
	for _, kv := range set.ToSlice() {
		words = append(words, string(kv.Key)+"="+kv.Value.String())
	}
	return strings.Join(words, " ")
}

// read returns the series of a metric, or nil if it does not exist.
func read(t testing.TB, reader metric.Reader, name string) map[string]float64 {
	t.Helper()
	for _, m := range collect(t, reader) {
		if m.Name == name {
			return series(m)
		}
	}
	return nil
}

// counts returns the counts of policies as lines "policy outcome 2", sorted, and the counts of
// requests as "outcome 2".
func counts(t testing.TB, reader metric.Reader) (policies, requests string) {
	t.Helper()
	lines := func(series map[string]float64) string {
		var all []string
		for _, attributes := range slices.Sorted(maps.Keys(series)) {
			if n := series[attributes]; n > 0 {
				var words []string
				for kv := range strings.SplitSeq(attributes, " ") {
					_, value, _ := strings.Cut(kv, "=")
					words = append([]string{value}, words...)
				}
				all = append(all, fmt.Sprintf("%s %v", strings.Join(words, " "), n))
			}
		}

		slices.Sort(all)
		return strings.Join(all, ", ")
	}
	return lines(read(t, reader, "ratelimit.decisions")), lines(read(t, reader, "ratelimit.decision.duration"))
}
