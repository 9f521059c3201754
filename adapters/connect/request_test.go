package ratelimit_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"

	"connectrpc.com/connect"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/connect"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

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
	server := httptest.NewUnstartedServer(handler(nil, connect.WithInterceptors(limit)))
	server.Listener.Close()
	server.Listener = l
	server.Start()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.DialUnix("unix", &net.UnixAddr{Name: "192.0.2.7", Net: "unix"}, l.Addr().(*net.UnixAddr))
	}}}
	defer client.CloseIdleConnections()
	if a := (site{url: "http://unix", client: client}).call(t.Context(), unaryCall, nil); a.code != 0 || !slices.Equal(got, []string{""}) {
		t.Errorf("got %v, keys %q; want an anonymous one", a.err, got)
	}
}
