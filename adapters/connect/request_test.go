package ratelimit_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/golang-jwt/jwt/v5"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/connect"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

type userKey struct{}

// authenticate is a stand-in for an interceptor that checks who the client is.
var authenticate = connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		return next(context.WithValue(ctx, userKey{}, "alice"), req)
	}
})

// The functions of package keyfunc work unchanged, with each protocol.
func TestKeys(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "bob", "exp": 4102444800}).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	owner := func(_ context.Context, k string) (string, bool) { return "team", k == "k1" }
	user := func(ctx context.Context) string { s, _ := ctx.Value(userKey{}).(string); return s }
	for protocol, options := range protocols {
		for _, test := range []struct {
			name   string
			key    func(*http.Request) (string, error)
			header []string
			want   string
		}{
			{"RemoteAddr", keyfunc.RemoteAddr, nil, "ip:127.0.0.1"},
			{"TrustedProxies", keyfunc.TrustedProxies("127.0.0.0/8"), []string{"X-Forwarded-For", "192.0.2.1", "X-Forwarded-For", "192.0.2.7"}, "ip:192.0.2.7"},
			{"APIKey", keyfunc.APIKey("X-Api-Key", owner), []string{"X-Api-Key", "k1"}, "key:team"},
			{"JWTSubject", keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"}), []string{"Authorization", "Bearer " + token}, "sub:|bob"},
			{"Subject", keyfunc.Subject(user), nil, "sub:alice"},
			{"Route", keyfunc.Route, nil, "route:" + unaryCall},
			{"host and path", func(r *http.Request) (string, error) {
				host, _, err := net.SplitHostPort(r.Host)
				return r.Method + " " + host + r.URL.Path, err
			}, nil, "POST 127.0.0.1" + unaryCall},
		} {
			var got []string
			limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) { got = append(got, d.Results[0].Subject) }},
				ratelimit.Policy{Name: "p", Key: test.key, Limit: gcra.PerHour(5)})
			s := serve(t, transports()[1], service{}.handler(connect.WithInterceptors(authenticate, limit))).with(options...)
			if a := s.call(t.Context(), unaryCall, test.header...); a.code != 0 {
				t.Errorf("%s, %s: got %v", protocol, test.name, a.err)
			}
			if !slices.Equal(got, []string{test.want}) {
				t.Errorf("%s, %s: got keys %q; want %q", protocol, test.name, got, test.want)
			}
		}
	}
}

// Routes are procedures and services, also of handlers that are mounted below a path.
func TestRoutes(t *testing.T) {
	var applied []string
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) {
		applied = nil
		for _, p := range d.Results {
			applied = append(applied, p.Policy)
		}
	}},
		ratelimit.Policy{Name: "method", Key: key("k"), Limit: gcra.PerHour(1000), Routes: []string{unaryCall}},
		ratelimit.Policy{Name: "service", Key: key("k"), Limit: gcra.PerHour(1000), Routes: []string{"/test.v1.Service/*"}},
		ratelimit.Policy{Name: "other", Key: key("k"), Limit: gcra.PerHour(1000), Routes: []string{"/other.Service/*"}})
	mux := http.NewServeMux()
	mux.Handle("/api/", http.StripPrefix("/api", service{}.handler(connect.WithInterceptors(limit))))
	s := serve(t, transports()[1], mux)
	s.url += "/api"
	for procedure, want := range map[string][]string{
		unaryCall:  {"method", "service"},
		getCall:    {"service"},
		streamCall: {"service"},
	} {
		if a := s.call(t.Context(), procedure); a.code != 0 || !slices.Equal(applied, want) {
			t.Errorf("%s: got %v, policies %q; want %q", procedure, a.err, applied, want)
		}
	}
}

// Clients write the header. Nothing in it makes a decision fail.
func TestHeaderIsWrittenByClients(t *testing.T) {
	owner := func(_ context.Context, k string) (string, bool) { return k, true }
	secret := func(*jwt.Token) (any, error) { return []byte("0123456789abcdef0123456789abcdef"), nil }
	unread := slog.New(slog.DiscardHandler) // gets the proxy that TrustedHops misses
	for protocol, options := range protocols {
		var d *ratelimit.Decision
		limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Logger: unread, Observe: func(_ *http.Request, seen *ratelimit.Decision) { d = seen }},
			ratelimit.Policy{Name: "address", Key: keyfunc.TrustedProxies("127.0.0.0/8"), Limit: gcra.PerHour(1000)},
			ratelimit.Policy{Name: "hop", Key: keyfunc.TrustedHops(2), Limit: gcra.PerHour(1000)},
			ratelimit.Policy{Name: "token", Key: keyfunc.JWTSubject(secret, []string{"HS256"}), Limit: gcra.PerHour(1000)},
			ratelimit.Policy{Name: "key", Key: keyfunc.APIKey("X-Key-Bin", owner), Limit: gcra.PerHour(1000)})
		s := serve(t, transports()[1], service{}.handler(connect.WithInterceptors(limit))).with(options...)
		huge := strings.Repeat("a", 1<<18)
		for name, header := range map[string][]string{
			"binary":   {"X-Key-Bin", connect.EncodeBinaryHeader([]byte("\x00\xff\n"))},
			"repeated": {"X-Key-Bin", "a", "X-Key-Bin", "b", "X-Forwarded-For", "192.0.2.1, ,", "X-Forwarded-For", "x", "Authorization", "Bearer a", "Authorization", "Bearer b"},
			"huge":     {"X-Key-Bin", huge, "X-Forwarded-For", huge, "Authorization", "Bearer " + huge},
			"odd":      {"X-Forwarded-For", "[::1%25]:x, ,,", "Host", "other.example", "RateLimit-Remaining", "9", "Retry-After", "0"},
		} {
			if a := s.call(t.Context(), unaryCall, header...); a.code != 0 || d.Err != nil || !has(a.meta, "RateLimit-Limit: 1000") {
				t.Errorf("%s, %s: got %v, Decision.Err %v, %v; want OK", protocol, name, a.err, d.Err, a.meta)
			}
		}
	}
}

// The client of a Unix socket names its end of it, for example like an address.
func TestUnixSocket(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "server"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) { got = append(got, d.Results[0].Subject) }},
		ratelimit.Policy{Name: "p", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(5)})
	server := httptest.NewUnstartedServer(service{}.handler(connect.WithInterceptors(limit)))
	server.Listener.Close()
	server.Listener = l
	server.Start()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.DialUnix("unix", &net.UnixAddr{Name: "192.0.2.7", Net: "unix"}, l.Addr().(*net.UnixAddr))
	}}}
	defer client.CloseIdleConnections()
	if a := (site{t: t, url: "http://unix", client: client}).call(t.Context(), unaryCall); a.code != 0 || !slices.Equal(got, []string{""}) {
		t.Errorf("got %v, keys %q; want an anonymous one", a.err, got)
	}
}
