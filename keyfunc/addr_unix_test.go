package keyfunc_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// On a Unix socket a client can give its end any name. It must not choose its key, nor
// become a trusted proxy.
func TestUnixSocketClientChoosesNoKey(t *testing.T) {
	t.Chdir(t.TempDir()) // the name is a file's
	l, err := net.Listen("unix", "server")
	if err != nil {
		t.Skip("no Unix sockets: ", err)
	}
	keys := map[string]keyfunc.Func{
		"RemoteAddr":     keyfunc.RemoteAddr,
		"TrustedProxies": keyfunc.TrustedProxies("192.0.2.0/24"),
		"TrustedHops":    keyfunc.TrustedHops(2),
		"AddrHeader":     keyfunc.AddrHeader("X-Real-IP", "192.0.2.0/24"),
		"Forwarded":      keyfunc.Forwarded("192.0.2.0/24"),
	}

	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := keys[r.URL.Path[1:]](r)
		if err != nil || key != "" {
			t.Errorf("%s, peer %s: got %q, %v; want an anonymous request", r.URL.Path, r.RemoteAddr, key, err)
		}
		_, _ = io.WriteString(w, r.RemoteAddr)
	}))

	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	server.Listener = l
	server.Start()
	defer server.Close()

	for _, name := range []string{"192.0.2.7", "192.0.2.7:80", "[2001:db8::1]:80"} {
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.DialUnix("unix", &net.UnixAddr{Name: name, Net: "unix"}, l.Addr().(*net.UnixAddr))
		}}
		client := &http.Client{Transport: transport}

		for function := range keys {
			req, err := http.NewRequest(http.MethodGet, "http://server/"+function, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Forwarded-For", "198.51.100.9")
			req.Header.Set("X-Real-IP", "198.51.100.9")
			req.Header.Set("Forwarded", "for=198.51.100.9")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}

			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != name {
				t.Errorf("the server sees peer %q, %v; want %q", body, err, name)
			}
			resp.Body.Close()
		}

		transport.CloseIdleConnections()
		_ = os.Remove(name)
	}
}
