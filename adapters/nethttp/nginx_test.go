package ratelimit_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// A real cache in front does not store a denial, though it stores the responses
// that middleware further out has marked for it. Whether nginx obeys X-Accel-Expires
// or Cache-Control depends on its version and on their order; this one is set to
// ignore Cache-Control.
func TestNginxDoesNotStoreADenial(t *testing.T) {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("no nginx on the PATH")
	}
	store, clock := newStore()
	limit := ratelimit.New(ratelimit.Config{Store: store},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1)})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Accel-Expires", "600")
		w.Header().Set("ETag", `"1"`)
		limit(http.HandlerFunc(hello)).ServeHTTP(w, r)
	}))
	t.Cleanup(origin.Close)
	client := startNginx(t, nginx, origin.Listener.Addr().String())

	get := func(path, want string) {
		t.Helper()
		res, _ := fetch(t, client, "http://cache"+path)
		if got := fmt.Sprint(res.StatusCode, " ", res.Header.Get("X-Cache")); got != want {
			t.Errorf("GET %s: got %s; want %s", path, got, want)
		}
	}
	get("/a", "200 MISS")
	get("/a", "200 HIT")
	get("/b", "429 MISS")
	clock.add(time.Hour)
	get("/b", "200 MISS")
}

// startNginx runs an nginx that caches in front of origin, and returns a client
// whose requests all go to it.
func startNginx(t *testing.T, nginx, origin string) *http.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "nginx") // short, as the path of a socket has to be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	conf := filepath.Join(dir, "nginx.conf")
	err = os.WriteFile(conf, []byte(strings.NewReplacer("DIR", dir, "ORIGIN", origin, "SOCKET", socket).Replace(`
daemon off;
master_process off;
pid DIR/pid;
error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path DIR/body;
	proxy_temp_path DIR/proxy;
	fastcgi_temp_path DIR/fastcgi;
	uwsgi_temp_path DIR/uwsgi;
	scgi_temp_path DIR/scgi;
	proxy_cache_path DIR/cache keys_zone=zone:1m;
	server {
		listen unix:SOCKET;
		proxy_cache zone;
		proxy_ignore_headers Cache-Control;
		add_header X-Cache $upstream_cache_status always;
		location / { proxy_pass http://ORIGIN; }
	}
}
`)), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), nginx, "-e", "stderr", "-p", dir, "-c", conf)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { <-ended })
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	for range 1000 {
		if conn, err := dial(t.Context(), "", ""); err == nil {
			conn.Close()
			client := &http.Client{Transport: &http.Transport{DialContext: dial}}
			t.Cleanup(client.CloseIdleConnections)
			return client
		}
		select {
		case <-ended:
			t.Fatalf("nginx has ended: %s", log.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("nginx does not listen")
	return nil
}
