package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func byHeader(r *http.Request) (string, error) { return r.Header.Get("X-Client"), nil }

// BenchmarkAllow is the whole middleware, without a handler or a server.
func BenchmarkAllow(b *testing.B) {
	limit := gcra.PerSecond(900_000).WithBurst(100_000_000)
	for _, bench := range []struct {
		name      string
		headers   middleware.Headers
		policies  []middleware.Policy
		noContext bool
	}{
		{"none", middleware.HeadersNone, []middleware.Policy{{Name: "a", Key: byHeader, Limit: limit}}, false},
		{"draft6", middleware.HeadersDraft6, []middleware.Policy{{Name: "a", Key: byHeader, Limit: limit}}, false},
		{"draft6/NoContext", middleware.HeadersDraft6, []middleware.Policy{{Name: "a", Key: byHeader, Limit: limit}}, true},
		{"draft6/three", middleware.HeadersDraft6, []middleware.Policy{
			{Name: "a", Key: byHeader, Limit: limit},
			{Name: "b", Key: byHeader, Limit: limit},
			{Name: "c", Key: byHeader, Limit: limit, Routes: []string{"POST /login", "GET /users/{id}"}},
		}, false},
		{"draft11", middleware.HeadersDraft11, []middleware.Policy{{Name: "a", Key: byHeader, Limit: limit}}, false},
	} {
		b.Run(bench.name, func(b *testing.B) {
			l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Headers: bench.headers, NoContext: bench.noContext}, bench.policies...))
			w := &discard{header: http.Header{}}
			r := httptest.NewRequest("GET", "/users/1", nil)
			r.Header.Set("X-Client", "alice")
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				if _, ok := l.Allow(w, r); !ok {
					b.Fatal("denied")
				}
			}
		})
	}
}

// BenchmarkDecide is a decision without a response. Its key reads the address.
func BenchmarkDecide(b *testing.B) {
	l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()},
		middleware.Policy{Name: "a", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(900_000).WithBurst(100_000_000)}))
	r := httptest.NewRequest("GET", "/users/1", nil)
	b.ReportAllocs()
	for b.Loop() {
		if d := l.Decide(r); !d.Allowed {
			b.Fatal("denied")
		}
	}
}

// discard is a ResponseWriter that keeps only the header.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}
