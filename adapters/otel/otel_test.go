package ratelimitotel_test

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	ratelimitotel "github.com/seed-e377111c/ratelimit/adapters/otel"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestInvalidArguments(t *testing.T) {
	l := limiter(t, doubles.NewStore(), middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(1)})
	provider := noop.NewMeterProvider()
	reports := limiter(t, doubles.NewStore(), middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(1)})
	if err := ratelimitotel.Instrument(provider, reports); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		provider metric.MeterProvider
		limiters []*middleware.Limiter
		want     string
	}{
		{nil, []*middleware.Limiter{l}, "the MeterProvider is nil; want"},
		{provider, nil, "no limiters; want at least one"},
		{provider, []*middleware.Limiter{l, nil}, "limiter number 2 is nil; want"},
		{provider, []*middleware.Limiter{l, l}, "limiter number 2 is repeated, or reports already; want"},
		{provider, []*middleware.Limiter{l, reports}, "limiter number 2 is repeated, or reports already; want"},
	} {
		err := ratelimitotel.Instrument(test.provider, test.limiters...)
		if err == nil || !strings.HasPrefix(err.Error(), "ratelimitotel: "+test.want) {
			t.Errorf("got %v; want ratelimitotel: %s", err, test.want)
		}
	}

	// Only with an observer is the time of a decision measured.
	if d := l.Decide(get("/")); d.Took != 0 {
		t.Errorf("after failed calls only: got a decision that took %v; want none measured", d.Took)
	}
}

// The global provider may be set after Instrument.
func TestGlobalProvider(t *testing.T) {
	if _, set := otel.GetMeterProvider().(*sdk.MeterProvider); set {
		t.Skip("the global provider is set already, by an earlier run of this test in this process")
	}
	l := limiter(t, doubles.NewStore(), middleware.Policy{Name: "user", Key: key("k"), Limit: gcra.PerHour(1)})
	if err := ratelimitotel.Instrument(otel.GetMeterProvider(), l); err != nil {
		t.Fatal(err)
	}
	reader := sdk.NewManualReader()
	otel.SetMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))
	l.Decide(get("/"))
	l.Decide(get("/"))
	if policies, requests := counts(t, reader); policies != "user allowed 1, user denied 1" || requests != "allowed 1, denied 1" {
		t.Errorf("got %s; of requests %s; want 1 allowed and 1 denied", policies, requests)
	}
}
