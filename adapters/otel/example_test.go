package ratelimitotel_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	ratelimitotel "github.com/seed-e377111c/ratelimit/adapters/otel"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// newHandler instruments a limiter before it passes it to the framework's adapter.
func newHandler(store gcra.Store, mux *http.ServeMux) (http.Handler, error) {
	limiter, err := middleware.New(middleware.Config{Store: store},
		middleware.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(2)},
		middleware.Policy{Name: "new-limit", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(1), Shadow: true})
	if err != nil {
		return nil, err
	}
	if err := ratelimitotel.Instrument(otel.GetMeterProvider(), limiter); err != nil {
		return nil, err
	}
	return ratelimit.From(limiter)(mux), nil
}

func ExampleInstrument() {
	reader := sdk.NewManualReader() // or an exporter's: OTLP, Prometheus, ...
	otel.SetMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))
	handler, err := newHandler(gcra.NewMemory(), http.NewServeMux())
	if err != nil {
		log.Fatal(err)
	}
	for range 4 {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/hello", nil))
	}
	printDecisions(reader)
	// Unordered output:
	// client allowed 2
	// client denied 2
	// new-limit allowed 1
	// new-limit shadow_denied 3
}

// printDecisions prints ratelimit.decisions without zeros.
func printDecisions(reader sdk.Reader) {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		log.Fatal(err)
	}

	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name != "ratelimit.decisions" {
			continue
		}
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			policy, _ := p.Attributes.Value("ratelimit.policy")
			outcome, _ := p.Attributes.Value("ratelimit.outcome")
			if p.Value > 0 {
				fmt.Println(policy.AsString(), outcome.AsString(), p.Value)
			}
		}
	}
}
