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
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

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

// A client that invents methods, where the server has a handler for unknown services, gets neither past a policy nor
// a route of its own.
func TestUnknownServices(t *testing.T) {
	proxy := grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(new(pb.Empty)); err != nil {
			return err
		}
		return stream.SendMsg(new(pb.Empty))
	})
	var applied []string
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) {
		applied = nil
		for _, p := range d.Results {
			applied = append(applied, strings.TrimSpace(p.Policy+" "+p.Subject))
		}
	}},
		ratelimit.Policy{Name: "other", Key: key("k"), Limit: gcra.PerHour(1000), Routes: []string{"/other.Service/*"}},
		ratelimit.Policy{Name: "stream", Key: key("k"), Limit: gcra.PerHour(1000), Routes: []string{"POST " + duplexCall}},
		ratelimit.Policy{Name: "route", Key: keyfunc.Route, Limit: gcra.PerHour(1000)})
	conn := dial(t, serve(t, new(service), append(limited(limit), proxy)...))
	for method, want := range map[string][]string{
		unaryCall:                  {"route route:" + unaryCall},
		duplexCall:                 {"stream k", "route route:" + duplexCall},
		"/other.Service/Invented":  {"other k", "route"},
		"/other.Service/a/b":       {"other k", "route"},
		"//other.Service/Invented": {"other k", "route"},
		"/third.Service/Invented":  {"route"},
	} {
		if method == duplexCall {
			if a := converse(t.Context(), conn); a.Code() != codes.OK {
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
