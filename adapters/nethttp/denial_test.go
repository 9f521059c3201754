package ratelimit_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	chimiddleware "github.com/go-chi/chi/v5/middleware"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// serve starts a server, and returns a function that sends it a GET with header
// fields "Name: value" and returns the response and its body, which is not decoded.
func serve(t *testing.T, h http.Handler) func(header ...string) (*http.Response, string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(client.CloseIdleConnections)
	return func(header ...string) (*http.Response, string) {
		t.Helper()
		return fetch(t, client, server.URL, header...)
	}
}

func fetch(t *testing.T, client *http.Client, url string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range header {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Set(name, value)
	}

	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()

	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// compressEarly sets Content-Encoding before it calls the limiter, as
// gorilla/handlers does.
func compressEarly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		compressed := gzip.NewWriter(w)
		defer compressed.Close()
		next.ServeHTTP(gzipWriter{w, compressed}, r)
	})
}

type gzipWriter struct {
	http.ResponseWriter
	compressed *gzip.Writer
}

func (w gzipWriter) Write(b []byte) (int, error) {
	w.Header().Del("Content-Length")
	return w.compressed.Write(b)
}

// A denial is readable behind middleware that compresses, whether that sets
// Content-Encoding before it calls the limiter or, as chi's does, with the first
// write.
func TestDenialIsReadableThroughCompression(t *testing.T) {
	for name, compress := range map[string]func(http.Handler) http.Handler{
		"early": compressEarly,
		"chi":   chimiddleware.Compress(5, "application/problem+json", "text/plain"),
	} {
		limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
			ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1)})
		get := serve(t, compress(limit(http.HandlerFunc(hello))))
		get("Accept-Encoding: gzip")
		for _, accepted := range []string{"gzip", "identity"} {
			res, body := get("Accept-Encoding: " + accepted)
			if coding := res.Header.Get("Content-Encoding"); coding == "gzip" {
				r, err := gzip.NewReader(strings.NewReader(body))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}

				plain, err := io.ReadAll(r)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				body = string(plain)
			} else if coding != "" || accepted == "gzip" {
				t.Errorf("%s, %s accepted: got Content-Encoding %q", name, accepted, coding)
			}

			var problem struct{ Title string }
			if err := json.Unmarshal([]byte(body), &problem); err != nil || res.StatusCode != 429 || problem.Title != "Quota Exceeded" {
				t.Errorf("%s, %s accepted: got %d, %q, %v; want 429 and a problem", name, accepted, res.StatusCode, body, err)
			}
		}
	}
}

// No field of middleware further out lets a cache store a denial. Other fields
// stay.
func TestDenialIsNotStored(t *testing.T) {
	stored := []string{
		"ETag", "Last-Modified", "Expires", "CDN-Cache-Control", "Cloudflare-CDN-Cache-Control", "Netlify-CDN-Cache-Control",
		"Vercel-CDN-Cache-Control", "Surrogate-Control", "X-Accel-Expires", "Edge-Control",
	}

	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1)})
	get := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range stored {
			w.Header().Set(name, "max-age=600")
		}
		w.Header()["eTAG"] = []string{`"spelled in another way"`}
		w.Header().Set("Cache-Control", "public, max-age=600")
		w.Header().Set("Vary", "Origin")
		limit(http.HandlerFunc(hello)).ServeHTTP(w, r)
	}))

	if res, _ := get(); res.StatusCode != 200 || res.Header.Get("Surrogate-Control") != "max-age=600" || res.Header.Get("Cache-Control") != "public, max-age=600" {
		t.Errorf("allowed: got %d with %v; want 200 with the fields", res.StatusCode, res.Header)
	}
	res, _ := get()
	for _, name := range stored {
		if got := res.Header.Values(name); res.StatusCode != 429 || got != nil {
			t.Errorf("denied: got %d with %s: %q; want 429 without", res.StatusCode, name, got)
		}
	}

	if res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("Vary") != "Origin" {
		t.Errorf("denied: got %v; want Cache-Control: no-store, Vary: Origin", res.Header)
	}
}

// A policy that could not be decided was not exceeded, so the 503 names none.
func TestClosedNamesNoPolicy(t *testing.T) {
	get := serve(t, ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()}, ratelimit.Policy{
		Name: "closed", OnFailure: middleware.FailClosed, Limit: gcra.PerMinute(5),
		Key: func(*http.Request) (string, error) { return "", fmt.Errorf("no key today") },
	})(http.HandlerFunc(hello)))
	res, body := get()
	var problem map[string]any
	if err := json.Unmarshal([]byte(body), &problem); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	if _, ok := problem["violated-policies"]; ok || res.StatusCode != 503 || problem["title"] != "Temporary Reduced Capacity" {
		t.Errorf("got %d, %s; want 503, the registered title and no violated-policies", res.StatusCode, body)
	}
}
