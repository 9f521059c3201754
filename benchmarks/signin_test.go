package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/signin"
)

// BenchmarkSignIn checks credentials with every request, which are right: without giving anything
// back, waiting until it is given back, and as Settle does. One caller is 5 ms away from Redis, which
// shows the wait; 256 show what Redis does.
func BenchmarkSignIn(b *testing.B) {
	for _, back := range []string{"nothing", "waiting", "later"} {
		b.Run("back="+back+"/far", func(b *testing.B) {
			server := redistest.Start(b)
			proxy := redistest.NewProxy(b, server.Addr)
			proxy.Delay(5 * time.Millisecond)
			client := newClient(proxy.Addr)
			b.Cleanup(func() { _ = client.Close() })
			measure(b, shared(signInCheck(b, client, back)), 1, subjects(200))
		})
		b.Run("back="+back+"/callers=256", func(b *testing.B) {
			d := oneRedis(b)
			measureOn(b, d, shared(signInCheck(b, d.dial(), back)), manyCallers, subjects(200))
		})
	}
}

func signInCheck(b *testing.B, client redis.UniversalClient, back string) check {
	b.Helper()
	store, err := redisstore.New(client, redisstore.Config{Timeout: patience})
	if err != nil {
		b.Fatal(err)
	}
	account := func(r *http.Request) (string, error) { name, _, _ := r.BasicAuth(); return name, nil }
	quiet := slog.New(slog.DiscardHandler) // what is given back after the end finds no Redis
	guard, err := signin.New(middleware.Config{Store: store, Logger: quiet}, account, keyfunc.RemoteAddr)
	if err != nil {
		b.Fatal(err)
	}

	policies := guard.Limiter().Policies()
	var counted []string
	for i := range policies {
		policies[i].Limit, policies[i].MaxDebt = gcra.PerSecond(1_000_000), 0
		if policies[i].Name != "login-requests" {
			counted = append(counted, policies[i].Name)
		}
	}
	if err := guard.Limiter().Reload(policies...); err != nil {
		b.Fatal(err)
	}

	return func(subject string) (bool, error) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(subject, "right")
		r, ok := guard.Limiter().Allow(httptest.NewRecorder(), r)
		switch back {
		case "waiting":
			return ok, middleware.FromContext(r.Context()).Refund(r.Context(), counted...)
		case "later":
			guard.Settle(r.Context(), signin.Right)
		}
		return ok, nil
	}
}
