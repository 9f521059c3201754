//go:build unix

package main

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// A server that was suspended learns of what was set and taken back meanwhile, and a ban that
// has ended does not come back.
func TestSuspendedServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	command := func(args ...string) string { return want(t, 0, append(args, "--redis", s.URL())) }

	cmd, got := process(t, "REDIS_URL="+s.URL(), "RATELIMIT_TEST_SERVE="+file(t, "policies: [{name: client, key: client, limit: 1000000/hour}]"))
	answer := func(addr string) string {
		t.Helper()
		return strings.TrimRight(got(addr), "truefals")
	}

	becomes := func(addr string, status int) {
		t.Helper()
		redistest.Eventually(t, busyMachine, addr+" to get "+http.StatusText(status), func() bool { return answer(addr) == fmt.Sprint(status) })
	}

	command("ban", "ip:192.0.2.1", "--for", "1h")
	command("ban", "ip:192.0.2.2", "--for", "8s")
	becomes("192.0.2.1", http.StatusForbidden)

	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	command("override", "unset", "ip:192.0.2.1")
	command("ban", "ip:192.0.2.3", "--for", "1h")

	redistest.Eventually(t, busyMachine, "the end of the short ban", func() bool {
		return !strings.Contains(command("override", "list"), "192.0.2.2")
	})

	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := answer("192.0.2.2"); got != "200" {
		t.Errorf("after the end of its ban: got %s; want 200", got)
	}
	becomes("192.0.2.1", http.StatusOK)
	becomes("192.0.2.3", http.StatusForbidden)
}
