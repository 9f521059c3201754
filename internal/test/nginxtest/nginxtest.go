// Package nginxtest runs nginx in front of servers of tests.
package nginxtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const config = `
daemon off; master_process off; pid pid; error_log stderr; events {}
http {
	access_log off; client_body_temp_path body; proxy_temp_path proxy;
	fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	%s
	server { listen unix:%s; %s }
}`

// required is an environment variable. It makes a missing partner of a test a failure, so that a CI run
// cannot pass by skipping.
const required = "RATELIMIT_TEST_PARTNERS"

// Missing skips the test because this program is missing, or fails it with RATELIMIT_TEST_PARTNERS=required.
func Missing(t testing.TB, program string) {
	t.Helper()
	if os.Getenv(required) == "required" {
		t.Fatalf("missing, and %s=required: %s", required, program)
	}
	t.Skipf("missing: %s; set %s=required to make this a failure", program, required)
}

// Start runs nginx until the test ends, and returns a client whose requests all
// go to it, whatever their host. The directives go into the http block and into
// its one server. If there is no nginx on the PATH, see [Missing].
func Start(t testing.TB, httpDirectives, serverDirectives string) *http.Client {
	t.Helper()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		Missing(t, "nginx")
	}

	dir, err := os.MkdirTemp("", "nginx") // t.TempDir may be too long for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, conf := filepath.Join(dir, "socket"), filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, config, httpDirectives, socket, serverDirectives), 0o600); err != nil {
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
	t.Cleanup(func() { <-ended }) // the end of t.Context kills it
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}

	for range 3000 {
		if conn, err := dial(t.Context(), "", ""); err == nil {
			_ = conn.Close()
			client := &http.Client{Transport: &http.Transport{DialContext: dial}}
			t.Cleanup(client.CloseIdleConnections)
			return client
		}

		select {
		case <-ended:
			t.Fatalf("nginx ended: %s", log.String())
		case <-time.After(10 * time.Millisecond):
		}
	}

	t.Fatal("nginx does not listen")
	return nil
}
