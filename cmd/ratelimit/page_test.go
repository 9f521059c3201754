package main

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware/fleet"
)

// The function of docs/operators.md.

func limits(ctx context.Context, url string) (func(http.Handler) http.Handler, error) {
	store, err := redisstore.Open(url, redisstore.Config{}) // rediss://limiter-fleet:PASSWORD@redis.internal:6379
	if err != nil {
		return nil, err
	}
	overrides, err := fleet.New(ctx, fleet.Config{Store: store})
	if err != nil {
		return nil, err
	}

	return ratelimit.New(
		ratelimit.Config{Store: store, Override: overrides.Find, BanStatus: http.StatusForbidden}, // or 429, the default
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)},
		ratelimit.Policy{Name: "login", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(5), Routes: []string{"POST /login"}},
	), nil
}

// pageServer returns a server with these limits.
func pageServer(ctx context.Context, url string) (http.Handler, error) {
	limit, err := limits(ctx, url)
	if err != nil {
		return nil, err
	}
	return limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), nil
}

// The page has the function above, of at most 25 lines, and a server with it follows the
// command, both over TLS.
func TestPage(t *testing.T) {
	source, err := os.ReadFile("page_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(source), "\nfunc limits(")
	shown, _, _ = strings.Cut(shown, "\n}\n")
	if shown = "func limits(" + shown + "\n}\n"; strings.Count(shown, "\n") > 25 || !strings.Contains(string(page), "```go\n"+shown+"```\n") {
		t.Errorf("docs/operators.md: want, in at most 25 lines,\n%s", shown)
	}

	certificates := redistest.NewCertificates(t)
	s := redistest.StartTLS(t, certificates)
	t.Setenv("REDIS_URL", "rediss://"+s.Addr)
	t.Setenv("SSL_CERT_FILE", certificates.CAFile)
	_, answer := process(t, "RATELIMIT_TEST_SERVE=page")
	if got := answer("192.0.2.7"); got != "200false" {
		t.Errorf("before the ban: got %s; want 200", got)
	}

	if err := spawn(t, "ban", "ip:192.0.2.7", "--for", "1h"); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, busyMachine, "the ban", func() bool { return answer("192.0.2.7") == "403true" })
	if err := spawn(t, "override", "unset", "ip:192.0.2.7"); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, busyMachine, "the end of the ban", func() bool { return answer("192.0.2.7") == "200false" })
}
