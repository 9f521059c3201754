package ratelimit_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/grpc"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/rpctest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// What the adapters of gRPC and Connect have in common.
func TestCommon(t *testing.T) {
	serve := func(t testing.TB, l *ratelimit.Limiter) func(http.Header) (http.Header, error) {
		authenticate := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			return handler(rpctest.Authenticate(ctx), req)
		}
		conn := dial(t, serve(t, new(service), grpc.ChainUnaryInterceptor(authenticate, ratelimit.From(l).Unary())))
		return func(header http.Header) (http.Header, error) {
			md := metadata.MD{}
			for name, values := range header {
				md.Append(name, values...)
			}
			a := call(metadata.NewOutgoingContext(t.Context(), md), conn)
			fields := http.Header{}
			for name, values := range a.header {
				fields[http.CanonicalHeaderKey(name)] = values
			}
			return fields, a.Err()
		}
	}
	rpctest.Keys(t, unaryCall, serve)
	rpctest.Headers(t, serve)
	rpctest.Bans(t, serve)
	rpctest.Panics(t, unaryCall, ratelimit.New, ratelimit.From)
}

// What a key function of the application sees.
func TestRequest(t *testing.T) {
	site := httptest.NewTLSServer(nil) // for its certificate
	defer site.Close()
	var seen *http.Request
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(r *http.Request, _ *ratelimit.Decision) { seen = r }},
		ratelimit.Policy{Name: "p", Key: key("k"), Limit: gcra.PerHour(5)})
	addr := serve(t, new(service), append(limited(limit), grpc.Creds(credentials.NewServerTLSFromCert(&site.TLS.Certificates[0])))...)
	pool := x509.NewCertPool()
	pool.AddCert(site.Certificate())
	conn := dial(t, addr, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "example.com"})), grpc.WithAuthority("example.com"))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-one", "1", "x-raw-bin", "\x00\xff")
	if a := call(ctx, conn); a.Code() != codes.OK {
		t.Fatal(a.Status)
	}
	for name, pair := range map[string][2]string{
		"Method":     {seen.Method, "POST"},
		"path":       {seen.URL.Path, unaryCall},
		"RequestURI": {seen.RequestURI, unaryCall},
		"Pattern":    {seen.Pattern, unaryCall},
		"Host":       {seen.Host, "example.com"},
		"X-One":      {seen.Header.Get("X-One"), "1"},
		"X-Raw-Bin":  {seen.Header.Get("X-Raw-Bin"), "AP8"},
		"ServerName": {seen.TLS.ServerName, "example.com"},
		":authority": {strings.Join(seen.Header[":authority"], ","), ""},
		"RemoteAddr": {seen.RemoteAddr[:10], "127.0.0.1:"},
		"User-Agent": {seen.UserAgent()[:8], "grpc-go/"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: got %q; want %q", name, pair[0], pair[1])
		}
	}
	if seen.ContentLength != -1 {
		t.Errorf("ContentLength: got %d; want -1", seen.ContentLength)
	}
	if n, err := seen.Body.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("Body: got %d bytes, %v; want none", n, err)
	}
}

// Routes are full methods and services. A client that invents methods, where the
// server has a handler for unknown services, gets neither past a policy nor a route of
// its own.
func TestRoutes(t *testing.T) {
	proxy := grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(new(pb.Empty)); err != nil {
			return err
		}
		return stream.SendMsg(new(pb.Empty))
	})
	var applied []string
	policy := func(name string, key func(*http.Request) (string, error), routes ...string) ratelimit.Policy {
		return ratelimit.Policy{Name: name, Key: key, Limit: gcra.PerHour(1000), Routes: routes}
	}
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) {
		applied = nil
		for _, p := range d.Results {
			applied = append(applied, strings.TrimSuffix(p.Policy+" "+p.Subject, " k"))
		}
	}},
		policy("method", key("k"), unaryCall),
		policy("service", key("k"), "/grpc.testing.TestService/*"),
		policy("other", key("k"), "/other.Service/*"),
		policy("stream", key("k"), "POST "+duplexCall),
		policy("route", keyfunc.Route))
	conn := dial(t, serve(t, new(service), append(limited(limit), proxy)...))
	for method, want := range map[string][]string{
		unaryCall:                  {"method", "service", "route route:" + unaryCall},
		emptyCall:                  {"service", "route route:" + emptyCall},
		duplexCall:                 {"service", "stream", "route route:" + duplexCall},
		"/other.Service/Invented":  {"other", "route "},
		"/other.Service/a/b":       {"other", "route "},
		"//other.Service/Invented": {"other", "route "},
		"/third.Service/Invented":  {"route "},
	} {
		if method == duplexCall {
			if a := converse(t, conn); a.Code() != codes.OK {
				t.Errorf("%s: got %v", method, a.Status)
			}
		} else if err := conn.Invoke(t.Context(), method, new(pb.Empty), new(pb.Empty)); err != nil {
			t.Errorf("%s: got %v", method, err)
		}
		if !slices.Equal(applied, want) {
			t.Errorf("%s: got policies %q; want %q", method, applied, want)
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
	memory := bufconn.Listen(1 << 16)
	var got []string
	var peer string
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(r *http.Request, d *ratelimit.Decision) {
		got, peer = append(got, d.Results[0].Subject), r.RemoteAddr
	}},
		ratelimit.Policy{Name: "p", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(5)})
	serveOn(t, l, new(service), limited(limit)...)
	serveOn(t, memory, new(service), limited(limit)...)
	overHTTP := httptest.NewUnstartedServer(newServer(new(service), limited(limit)...))
	overHTTP.Listener.Close()
	if overHTTP.Listener, err = net.Listen("unix", filepath.Join(dir, "http")); err != nil {
		t.Fatal(err)
	}
	overHTTP.Config.Protocols = new(http.Protocols)
	overHTTP.Config.Protocols.SetUnencryptedHTTP2(true)
	overHTTP.Start()
	defer overHTTP.Close()
	for name, dialer := range map[string]func(context.Context, string) (net.Conn, error){
		"unix":    func(context.Context, string) (net.Conn, error) { return net.Dial("unix", l.Addr().String()) },
		"bufconn": func(ctx context.Context, _ string) (net.Conn, error) { return memory.DialContext(ctx) },
		"unix, with a name": func(context.Context, string) (net.Conn, error) {
			return net.DialUnix("unix", &net.UnixAddr{Name: "192.0.2.7", Net: "unix"}, l.Addr().(*net.UnixAddr))
		},
		"unix, with a name, over net/http": func(context.Context, string) (net.Conn, error) {
			return net.DialUnix("unix", &net.UnixAddr{Name: "192.0.2.8", Net: "unix"}, overHTTP.Listener.Addr().(*net.UnixAddr))
		},
	} {
		conn := dial(t, "passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dialer))
		if a := call(t.Context(), conn); a.Code() != codes.OK {
			t.Errorf("%s: got %v", name, a.Status)
		}
		if !slices.Equal(got, []string{""}) {
			t.Errorf("%s: got keys %q; want an anonymous one", name, got)
		}
		if name != "bufconn" && peer != "@" {
			t.Errorf("%s: got RemoteAddr %q; want @", name, peer)
		}
		got = nil
	}
}
