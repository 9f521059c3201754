package ratelimit_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/grpc"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

type userKey struct{}

// authenticate is a stand-in for an interceptor that checks who the client is.
func authenticate(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	return handler(context.WithValue(ctx, userKey{}, "alice"), req)
}

// The functions of package keyfunc work unchanged.
func TestKeys(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "bob", "exp": 4102444800}).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		key  func(*http.Request) (string, error)
		md   []string
		want string
	}{
		{"RemoteAddr", keyfunc.RemoteAddr, nil, "ip:127.0.0.1"},
		{"TrustedProxies", keyfunc.TrustedProxies("127.0.0.0/8"), []string{"x-forwarded-for", "192.0.2.1", "x-forwarded-for", "192.0.2.7"}, "ip:192.0.2.7"},
		{"TrustedProxies, another peer", keyfunc.TrustedProxies("10.0.0.0/8"), []string{"forwarded", "for=192.0.2.7"}, "ip:127.0.0.1"},
		{"APIKey", keyfunc.APIKey("X-Api-Key", func(_ context.Context, k string) (string, bool) { return "team", k == "k1" }), []string{"x-api-key", "k1"}, "key:team"},
		{"APIKey twice", keyfunc.APIKey("X-Api-Key", func(_ context.Context, k string) (string, bool) { return "team", k == "k1" }), []string{"x-api-key", "k1", "x-api-key", "k2"}, ""},
		{"JWTSubject", keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"}), []string{"authorization", "Bearer " + token}, "sub:|bob"},
		{"Subject", keyfunc.Subject(func(ctx context.Context) string { s, _ := ctx.Value(userKey{}).(string); return s }), nil, "sub:alice"},
		{"Route", keyfunc.Route, nil, "route:" + unaryCall},
	} {
		var got []string
		limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) { got = append(got, d.Results[0].Subject) }},
			ratelimit.Policy{Name: "p", Key: test.key, Limit: gcra.PerHour(5)})
		conn := dial(t, serve(t, new(service), grpc.ChainUnaryInterceptor(authenticate, limit.Unary())))
		if a := call(metadata.AppendToOutgoingContext(t.Context(), test.md...), conn); a.Code() != codes.OK {
			t.Errorf("%s: got %v", test.name, a.Status)
		}
		if !slices.Equal(got, []string{test.want}) {
			t.Errorf("%s: got keys %q; want %q", test.name, got, test.want)
		}
	}
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

// Clients write the metadata. None of it makes a decision fail.
func TestMetadataIsWrittenByClients(t *testing.T) {
	owner := func(_ context.Context, k string) (string, bool) { return k, true }
	secret := func(*jwt.Token) (any, error) { return []byte("0123456789abcdef0123456789abcdef"), nil }
	var d *ratelimit.Decision
	unread := slog.New(slog.DiscardHandler) // gets the proxy that TrustedHops misses
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Logger: unread, Observe: func(_ *http.Request, seen *ratelimit.Decision) { d = seen }},
		ratelimit.Policy{Name: "address", Key: keyfunc.TrustedProxies("127.0.0.0/8"), Limit: gcra.PerHour(1000)},
		ratelimit.Policy{Name: "hop", Key: keyfunc.TrustedHops(2), Limit: gcra.PerHour(1000)},
		ratelimit.Policy{Name: "token", Key: keyfunc.JWTSubject(secret, []string{"HS256"}), Limit: gcra.PerHour(1000)},
		ratelimit.Policy{Name: "key", Key: keyfunc.APIKey("X-Key", owner), Limit: gcra.PerHour(1000)},
		ratelimit.Policy{Name: "bin", Key: keyfunc.APIKey("X-Key-Bin", owner), Limit: gcra.PerHour(1000)})
	conn := dial(t, serve(t, new(service), limited(limit)...))
	huge := strings.Repeat("a", 1<<20)
	for name, md := range map[string]metadata.MD{
		"binary":   {"x-key-bin": {"\x00\xff\n", ""}, "x-forwarded-for-bin": {"\x00"}, "authorization-bin": {huge}},
		"repeated": {"x-key": slices.Repeat([]string{"k"}, 1000), "x-forwarded-for": slices.Repeat([]string{"192.0.2.1, ,"}, 1000), "authorization": {"Bearer a", "Bearer b"}},
		"huge":     {"x-key": {huge}, "x-key-bin": {huge}, "x-forwarded-for": {huge}, "authorization": {"Bearer " + huge}},
		"empty":    {"x-key": {""}, "x-forwarded-for": {""}, "authorization": {""}, "x-key-bin": {""}},
		"odd":      {"x_key": {"k"}, "x.key": {"k"}, "-": {"k"}, "x-forwarded-for": {"[::1%25]:x, ,,"}, "ratelimit-remaining": {"9"}, "grpc-retry-pushback-ms": {"0"}},
	} {
		a := call(metadata.NewOutgoingContext(t.Context(), md), conn)
		if a.Code() != codes.OK || d.Err != nil || first(a.header, "ratelimit-limit") != "1000" {
			t.Errorf("%s: got %v, Decision.Err %v; want OK", name, a.Status, d.Err)
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
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) { got = append(got, d.Results[0].Subject) }},
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
		got = nil
	}
}
