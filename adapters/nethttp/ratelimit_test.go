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
		{"CONNECT", "/acme/x", "route:/{tenant}/"},
		{"CONNECT", "/acme/", "route:/{tenant}/"},
		// A mux answers a CONNECT that it redirects with the path for a pattern.
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

// Behind http.StripPrefix a pattern for the path that is left applies, also if the route is the whole path.
func TestRouteOfOnePathBehindStripPrefix(t *testing.T) {
	for _, test := range []struct {
		routes string
		want   int
	}{
		{"POST /login", http.StatusTooManyRequests},
		{"POST /auth/login", http.StatusTooManyRequests},
		{"POST /logout", http.StatusOK},
		{"GET /login", http.StatusOK},
	} {
		limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
			ratelimit.Policy{Name: "login", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1), Routes: []string{test.routes}})
		mux := http.NewServeMux()
		mux.Handle("POST /auth/login", http.StripPrefix("/auth", limit(http.HandlerFunc(hello))))

		for _, want := range []int{http.StatusOK, test.want} {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/auth/login", nil))
			if w.Code != want {
				t.Errorf("%s: got %d; want %d", test.routes, w.Code, want)
			}
		}
	}
}

// Behind http.StripPrefix the path of a request is not below its route, /auth/. A pattern that has a parameter in place of
// "auth" was written for the path that is left.
func TestParameterBehindStripPrefix(t *testing.T) {
	for _, routes := range []string{"POST /{action}", "/{action}"} {
		limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
			ratelimit.Policy{Name: "action", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1), Routes: []string{routes}})
		mux := http.NewServeMux()
		mux.Handle("/auth/", http.StripPrefix("/auth", limit(http.HandlerFunc(hello))))

		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/auth/login", nil))
			if w.Code != want {
				t.Errorf("%s: got %d; want %d", routes, w.Code, want)
			}
		}
	}
}
