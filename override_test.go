package ratelimit_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// overrides sends requests of users and of addresses behind a trusted proxy.
func overrides(t *testing.T, build func(sitetest.App) http.Handler) {
	policies, err := policyfile.Parse("policies.yaml", []byte(`
policies:
  - name: client
    key: [user, address]
    limit: 1/hour
    overrides:
      - limit: 2/hour
        subjects: ["sub:alice", "ip:198.51.100.0/24", "ip:2001:db8::/32"]
      - limit: 3/hour
        subjects: ["ip:198.51.100.7", "ip:2001:db8:7::/48"]
      - limit: none
        subjects: ["sub:probe", "ip:192.0.2.7"]
`), policyfile.Funcs{Keys: map[string]keyfunc.Func{
		"user": func(r *http.Request) (string, error) {
			return keyfunc.Subject(func(context.Context) string { return r.Header.Get("X-User") })(r)
		},
		"address": keyfunc.TrustedProxies("127.0.0.1/32"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := sitetest.Start(t, sitetest.Config{Build: build, Policies: policies, Config: middleware.Config{Store: gcra.NewMemory()}})
	for header, want := range map[string][]int{
		"X-User: bob":                            {200, 429, 429, 429},
		"X-User: alice":                          {200, 200, 429, 429},
		"X-User: probe":                          {200, 200, 200, 200},
		"X-Forwarded-For: 203.0.113.1":           {200, 429, 429, 429},
		"X-Forwarded-For: 198.51.100.1":          {200, 200, 429, 429},
		"X-Forwarded-For: 198.51.100.7":          {200, 200, 200, 429},
		"X-Forwarded-For: 2001:db8:1:2::3":       {200, 200, 429, 429},
		"X-Forwarded-For: 2001:db8:7:2::3":       {200, 200, 200, 429},
		"X-Forwarded-For: ::ffff:192.0.2.7":      {200, 200, 200, 200},
		"X-Forwarded-For: 2001:db9::198.51.1.7 ": {200, 429, 429, 429},
	} {
		expect(t, header, s.Statuses(t, "GET /ok", 4, header), want)
	}
	denied := s.Do(t, "GET /ok", "X-User: alice")
	expect(t, "alice's fields", []string{denied.Header.Get("RateLimit-Policy"), denied.Header.Get("Retry-After")}, []string{"2;w=3600", "1800"})
	expect(t, "the probe's field", s.Do(t, "GET /ok", "X-User: probe").Header.Get("RateLimit-Policy"), "")
}
