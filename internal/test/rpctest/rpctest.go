// Package rpctest tests what the adapters of gRPC and Connect have in common.
package rpctest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Serve starts a server whose only interceptors are one that calls [Authenticate] and the
// limiter's, and returns a function that makes a call. That sends the fields, those of names
// that end in -Bin encoded, and returns the fields of the response.
type Serve func(t testing.TB, l *middleware.Limiter) func(http.Header) (http.Header, error)

type userKey struct{}

// Authenticate is a stand-in for an interceptor that checks who the client is.
func Authenticate(ctx context.Context) context.Context {
	return context.WithValue(ctx, userKey{}, "alice")
}

var secret = []byte("0123456789abcdef0123456789abcdef")

func hmacKey(*jwt.Token) (any, error) { return secret, nil }

// Keys tests that the functions of package keyfunc work unchanged. path is that of the call.
func Keys(t *testing.T, path string, serve Serve) {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "bob", "exp": 4102444800}).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}

	team := keyfunc.APIKey("X-Api-Key", func(_ context.Context, k string) (string, bool) { return "team", k == "k1" })

	for _, test := range []struct {
		name   string
		key    keyfunc.Func
		header http.Header
		want   string
	}{
		{"RemoteAddr", keyfunc.RemoteAddr, nil, "ip:127.0.0.1"},
		{"TrustedProxies", keyfunc.TrustedProxies("127.0.0.0/8"), http.Header{"X-Forwarded-For": {"192.0.2.1", "192.0.2.7"}}, "ip:192.0.2.7"},
		{"TrustedProxies, another peer", keyfunc.TrustedProxies("10.0.0.0/8"), http.Header{"Forwarded": {"for=192.0.2.7"}}, "ip:127.0.0.1"},
		{"APIKey", team, http.Header{"X-Api-Key": {"k1"}}, "key:team"},
		{"APIKey twice", team, http.Header{"X-Api-Key": {"k1", "k2"}}, "key:team"},
		{"JWTSubject", keyfunc.JWTSubject(hmacKey, []string{"HS256"}), http.Header{"Authorization": {"Bearer " + token}}, "sub:|bob"},
		{"Subject", keyfunc.Subject(func(ctx context.Context) string { s, _ := ctx.Value(userKey{}).(string); return s }), nil, "sub:alice"},
		{"Route", keyfunc.Route, nil, "route:" + path},
		{"method and path", func(r *http.Request) (string, error) { return r.Method + " " + r.URL.Path, nil }, nil, "POST " + path},
	} {
		var got []string
		observe := func(_ *http.Request, d *middleware.Decision) { got = append(got, d.Results[0].Subject) }
		call := serve(t, middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Observe: observe},
			middleware.Policy{Name: "p", Key: test.key, Limit: gcra.PerHour(5)})))

		if _, err := call(test.header); err != nil {
			t.Errorf("%s: got %v", test.name, err)
		}
		if !slices.Equal(got, []string{test.want}) {
			t.Errorf("%s: got keys %q; want %q", test.name, got, test.want)
		}
	}
}

// Headers tests that nothing in the header, which clients write, makes a decision fail.
func Headers(t *testing.T, serve Serve) {
	t.Helper()
	owner := func(_ context.Context, k string) (string, bool) { return k, true }

	var d *middleware.Decision
	cfg := middleware.Config{
		Store:   gcra.NewMemory(),
		Observe: func(_ *http.Request, seen *middleware.Decision) { d = seen },
		Logger:  slog.New(slog.DiscardHandler), // gets the proxy that TrustedHops misses
	}

	thousand := gcra.PerHour(1000)
	call := serve(t, middleware.Must(middleware.New(cfg,
		middleware.Policy{Name: "address", Key: keyfunc.TrustedProxies("127.0.0.0/8"), Limit: thousand},
		middleware.Policy{Name: "hop", Key: keyfunc.TrustedHops(2), Limit: thousand},
		middleware.Policy{Name: "token", Key: keyfunc.JWTSubject(hmacKey, []string{"HS256"}), Limit: thousand},
		middleware.Policy{Name: "key", Key: keyfunc.APIKey("X-Key", owner), Limit: thousand},
		middleware.Policy{Name: "bin", Key: keyfunc.APIKey("X-Key-Bin", owner), Limit: thousand})))

	huge := strings.Repeat("a", 1<<17)
	for name, header := range map[string]http.Header{
		"binary":   {"X-Key-Bin": {"\x00\xff\n", ""}, "X-Forwarded-For-Bin": {"\x00"}, "Authorization-Bin": {huge}},
		"repeated": {"X-Key": slices.Repeat([]string{"k"}, 200), "X-Forwarded-For": slices.Repeat([]string{"192.0.2.1, ,"}, 200), "Authorization": {"Bearer a", "Bearer b"}}, // net/http takes 500 values
		"huge":     {"X-Key": {huge}, "X-Key-Bin": {huge}, "X-Forwarded-For": {huge}, "Authorization": {"Bearer " + huge}},
		"empty":    {"X-Key": {""}, "X-Forwarded-For": {""}, "Authorization": {""}, "X-Key-Bin": {""}},
		"odd": {"X_key": {"k"}, "X.key": {"k"}, "-": {"k"}, "Host": {"other.example"}, "X-Forwarded-For": {"[::1%25]:x, ,,"},
			"Ratelimit-Remaining": {"9"}, "Retry-After": {"0"}, "Grpc-Retry-Pushback-Ms": {"0"}},
	} {
		fields, err := call(header)
		if err != nil {
			t.Errorf("%s: got %v; want the call answered", name, err)
			continue
		}
		if d.Err != nil || !slices.Equal(fields.Values("RateLimit-Limit"), []string{"1000"}) {
			t.Errorf("%s: got Decision.Err %v, %v; want a decision without an error", name, d.Err, fields)
		}
	}
}

// Bans tests that a banned client hears that it is banned.
func Bans(t *testing.T, serve Serve) {
	t.Helper()
	banned := func(string) (middleware.Override, bool) {
		return middleware.Override{Banned: true, Until: time.Now().Add(time.Hour)}, true
	}
	for _, cfg := range []middleware.Config{
		{},
		{BanStatus: http.StatusForbidden}, // of a limiter that serves HTTP too
	} {
		cfg.Store = gcra.NewMemory()
		call := serve(t, middleware.Must(middleware.New(cfg,
			middleware.Policy{Name: "p", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(5), Override: banned})))
		if _, err := call(nil); err == nil || !strings.HasSuffix(err.Error(), "The call was denied because its client is banned.") {
			t.Errorf("%+v: got %v; want that the client is banned", cfg, err)
		}
	}
}

// Panics tests that New and From of an adapter panic at a mistake, with what is wrong. path is
// that of a call.
func Panics[I any](t *testing.T, path string, build func(middleware.Config, ...middleware.Policy) I, from func(*middleware.Limiter) I) {
	t.Helper()
	policy := middleware.Policy{Name: "p", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1), Routes: []string{path[1:]}}

	for want, f := range map[string]func(){
		"Store is nil": func() { build(middleware.Config{}) },
		`Routes[0] is "` + path[1:] + `", which matches no call; want one such as "/package.Service/Method"`: func() {
			build(middleware.Config{Store: gcra.NewMemory()}, policy)
		},
		"the Limiter is nil": func() { from(nil) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("got %s; want a panic that says %s", got, want)
				}
			}()
			f()
		}()
	}
}
