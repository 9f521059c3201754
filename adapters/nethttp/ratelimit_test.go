package ratelimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

func TestRouteIsTheMuxs(t *testing.T) {
	var subject string
	mux := http.NewServeMux()
	mux.HandleFunc("/{tenant}/", hello)
	h := ratelimit.New(ratelimit.Config{
		Store:   gcra.NewMemory(),
		Observe: func(_ *http.Request, d *ratelimit.Decision) { subject = d.Results[0].Subject },
	}, ratelimit.Policy{Name: "route", Key: keyfunc.Route, Limit: gcra.PerMinute(100)})(mux)

	for _, test := range []struct{ method, path, want string }{
		{"GET", "/acme/x", "route:/{tenant}/"},
		{"GET", "/acme", "route:/{tenant}/"}, // redirected
		{"GET", "/", ""},
		// A mux answers a CONNECT that it redirects with the path for a pattern.
		{"CONNECT", "/acme/x", ""},
		{"CONNECT", "/made-up-by-the-client", ""},
		{"CONNECT", "example.com:443", ""},
	} {
		r := httptest.NewRequest(test.method, test.path, nil)
		r.Pattern = "/stale" // of a mux around this one
		h.ServeHTTP(httptest.NewRecorder(), r)
		if subject != test.want {
			t.Errorf("%s %s: got key %q; want %q", test.method, test.path, subject, test.want)
		}
		if r.Pattern != "/stale" {
			t.Errorf("%s %s: the caller's request was changed", test.method, test.path)
		}
	}
}
