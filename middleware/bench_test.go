package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

func byHeader(r *http.Request) (string, error) { return r.Header.Get("X-Client"), nil }

// BenchmarkAllow is the whole middleware, without a handler or a server.
func BenchmarkAllow(b *testing.B) {
	limit := gcra.PerSecond(900_000).WithBurst(100_000_000)
	for _, bench := range []struct {
		name     string
		headers  middleware.Headers
		policies []middleware.Policy
	}{
		{"none", middleware.HeadersNone, []middleware.Policy{{Name: "a", Key: byHeader, Limit: limit}}},
		{"draft6", middleware.HeadersDraft6, []middleware.Policy{{Name: "a", Key: byHeader, Limit: limit}}},
		{"three", middleware.HeadersDraft6, []middleware.Policy{
			{Name: "a", Key: byHeader, Limit: limit},
			{Name: "b", Key: byHeader, Limit: limit},
			{Name: "c", Key: byHeader, Limit: limit, Routes: []string{"POST /login", "GET /users/{id}"}},
		}},
		{"draft11", middleware.HeadersDraft11, []middleware.Policy{{Name: "a", Key: byHeader, Limit: limit}}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Headers: bench.headers}, bench.policies...))

			w := &discard{header: http.Header{}}
			r := httptest.NewRequest("GET", "/users/1", nil)
			r.Header.Set("X-Client", "alice")
			r.Pattern = "GET /users/{name}"
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
	for _, bench := range []struct {
		name      string
		overrides int
		address   string
	}{
		{"IPv4/no overrides", 0, "192.0.2.1:1"},
		{"IPv4/10000 of other keys", 10_000, "192.0.2.1:1"},
		{"IPv4/10000 with the key", 10_000, "10.1.0.7:1"},
		{"IPv4/10000 with its network", 10_000, "10.1.2.7:1"},
		{"IPv6/no overrides", 0, "[2001:db8:270f:8001::1]:1"},
		{"IPv6/10000 with its network", 10_000, "[2001:db8:270f:8001::1]:1"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()}, withOverrides(b, bench.overrides)))
			r := httptest.NewRequest("GET", "/users/1", nil)
			r.RemoteAddr = bench.address
			b.ReportAllocs()

			for b.Loop() {
				if d := l.Decide(r); !d.Allowed {
					b.Fatal("denied")
				}
			}
		})
	}
}

// withOverrides returns a policy of a file with n overrides: addresses and networks of
// both kinds, and users.
func withOverrides(b *testing.B, n int) middleware.Policy {
	b.Helper()
	const limit = "900000/second burst 100000000"
	text := "policies:\n- name: a\n  key: client\n  limit: " + limit + "\n"
	if n > 0 {
		text += "  overrides:\n  - limit: " + limit + "\n    subjects:\n"
	}
	for i := range n {
		forms := []string{"ip:10.%d.%d.0/24", "ip:10.%d.%d.7", "sub:user-%d-%d", "ip:2001:db8:%02x%02x:8000::/50"}
		text += "    - " + fmt.Sprintf(forms[i%len(forms)], i>>8, i&255&^3) + "\n"
	}
	policies, err := policyfile.Parse("policies.yaml", []byte(text), policyfile.Funcs{Keys: map[string]keyfunc.Func{"client": keyfunc.RemoteAddr}})
	if err != nil {
		b.Fatal(err)
	}
	return policies[0]
}

// discard is a ResponseWriter that keeps only the header.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}
