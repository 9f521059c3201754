package ratelimit_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/connect"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/rpctest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// What the adapters of gRPC and Connect have in common, with each protocol.
func TestCommon(t *testing.T) {
	for protocol, options := range protocols {
		serve := func(t testing.TB, l *ratelimit.Limiter) func(http.Header) (http.Header, error) {
			authenticate := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
				return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
					return next(rpctest.Authenticate(ctx), req)
				}
			})
			s := serve(t, transports()[1], service{}.handler(connect.WithInterceptors(authenticate, ratelimit.From(l)))).with(options...)
			return func(header http.Header) (http.Header, error) {
				var lines []string
				for name, values := range header {
					for _, value := range values {
						if strings.HasSuffix(name, "-Bin") {
							value = connect.EncodeBinaryHeader([]byte(value))
						}
						lines = append(lines, name, value)
					}
				}
				a := s.call(t.Context(), unaryCall, lines...)
				if a.code != 0 {
					return a.meta, a.err
				}
				return a.meta, nil
			}
		}
		t.Run(protocol, func(t *testing.T) {
			rpctest.Keys(t, unaryCall, serve)
			rpctest.Headers(t, serve)
			rpctest.Bans(t, serve)
		})
	}
	rpctest.Panics(t, unaryCall, ratelimit.New, ratelimit.From)
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
