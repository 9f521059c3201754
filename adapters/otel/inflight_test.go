package ratelimitotel_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	ratelimitotel "github.com/seed-e377111c/ratelimit/adapters/otel"
	"github.com/seed-e377111c/ratelimit/inflight"
)

// A collection finds what is held at its moment, by the name of the limit.
func TestInFlight(t *testing.T) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	l, err := inflight.NewMemory(inflight.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(t.Context()) })
	if err := ratelimitotel.InstrumentInFlight(provider, l); err != nil {
		t.Fatal(err)
	}

	values := func(held, denied float64) {
		t.Helper()
		for name, want := range map[string]float64{"held": held, "denied": denied} {
			if got := read(t, reader, "ratelimit.inflight."+name); len(got) != 1 || got["ratelimit.policy=exports"] != want {
				t.Errorf("%s: got %v; want %v of exports", name, got, want)
			}
		}
	}
	h := l.Handler(inflight.Limit{Name: "exports", Key: key("secret"), Max: 1})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values(1, 0)
		second := l.Handler(inflight.Limit{Name: "exports", Key: key("secret"), Max: 1})(http.NotFoundHandler())
		second.ServeHTTP(w, r)
		values(1, 1)
	}))
	h.ServeHTTP(httptest.NewRecorder(), get("/"))
	values(0, 1)

	for _, err := range []error{ratelimitotel.InstrumentInFlight(nil, l), ratelimitotel.InstrumentInFlight(provider, nil)} {
		if err == nil || !strings.Contains(err.Error(), "want both") {
			t.Errorf("got %v; want an error", err)
		}
	}
}
