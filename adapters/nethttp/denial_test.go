package ratelimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// answer serves a GET.
func answer(h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w
}

// No field of middleware further out lets a cache store a denial. Other fields
// stay.
func TestDenialIsNotStored(t *testing.T) {
	stored := []string{
		"Etag", "Last-Modified", "Expires", "Cdn-Cache-Control", "Cloudflare-Cdn-Cache-Control", "Netlify-Cdn-Cache-Control",
		"Vercel-Cdn-Cache-Control", "Surrogate-Control", "X-Accel-Expires", "Edge-Control",
	}

	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1)})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range stored {
			w.Header().Set(name, "max-age=600")
		}
		w.Header()["eTAG"] = []string{`"spelled in another way"`}
		w.Header().Set("Cache-Control", "public, max-age=600")
		w.Header().Set("Vary", "Origin")
		limit(http.HandlerFunc(hello)).ServeHTTP(w, r)
	})

	if w := answer(h); w.Code != 200 || w.Header().Get("Surrogate-Control") != "max-age=600" || w.Header().Get("Cache-Control") != "public, max-age=600" {
		t.Errorf("allowed: got %d with %v; want 200 with the fields", w.Code, w.Header())
	}
	w := answer(h)
	for _, name := range append(stored, "eTAG") {
		if got := w.Header()[name]; w.Code != 429 || got != nil {
			t.Errorf("denied: got %d with %s: %q; want 429 without", w.Code, name, got)
		}
	}

	if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Vary") != "Origin" {
		t.Errorf("denied: got %v; want Cache-Control: no-store, Vary: Origin", w.Header())
	}
}

// A policy that could not be decided was not exceeded, so the 503 names none.
func TestClosedNamesNoPolicy(t *testing.T) {
	w := answer(ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()}, ratelimit.Policy{
		Name: "closed", OnFailure: middleware.FailClosed, Limit: gcra.PerMinute(5),
		Key: func(*http.Request) (string, error) { return "", errors.New("no key today") },
	})(http.HandlerFunc(hello)))
	if body := w.Body.String(); w.Code != 503 || !strings.Contains(body, `"title":"Temporary Reduced Capacity"`) || strings.Contains(body, "violated-policies") {
		t.Errorf("got %d, %s; want 503, the registered title and no violated-policies", w.Code, body)
	}
}
