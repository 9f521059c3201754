package main

import (
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	ratelimitotel "github.com/seed-e377111c/ratelimit/adapters/otel"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// newAPI returns the API behind an instrumented limiter. override may be nil.
func newAPI(store gcra.Store, override func(policy, subject string) (middleware.Override, bool)) (http.Handler, error) {
	client := keyfunc.RemoteAddr // behind a proxy: keyfunc.TrustedProxies
	limiter, err := middleware.New(middleware.Config{Store: store, Override: override},
		middleware.Policy{Name: "client", Key: client, Limit: gcra.PerMinute(60)},
		middleware.Policy{Name: "tight", Key: client, Limit: gcra.PerMinute(20), Shadow: true},
		middleware.Policy{Name: "slow", Key: client, Limit: gcra.PerSecond(5).WithBurst(1),
			MaxDelay: time.Second, Routes: []string{"GET /slow"}},
		middleware.Policy{Name: "report", Key: client, Limit: gcra.Quota(20, gcra.Monthly), Routes: []string{"GET /report"}},
	)
	if err != nil {
		return nil, err
	}

	if err := ratelimitotel.Instrument(otel.GetMeterProvider(), limiter); err != nil {
		return nil, err
	}

	hello := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", hello)
	mux.HandleFunc("GET /slow", hello)
	mux.HandleFunc("GET /report", hello)
	return ratelimit.From(limiter)(mux), nil
}
