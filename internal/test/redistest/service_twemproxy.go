package redistest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// NewTwemproxy runs twemproxy (Debian's package nutcracker) in front of two servers, with hash
// tags. The test is skipped where it is not installed, or fails with
// RATELIMIT_TEST_PARTNERS=required.
func NewTwemproxy(t testing.TB) *Service {
	t.Helper()
	path, err := exec.LookPath("nutcracker")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/nutcracker") // not on the PATH of every user
	}

	switch {
	case err == nil:
	case os.Getenv("RATELIMIT_TEST_PARTNERS") == "required":
		t.Fatalf("nutcracker: %v, and RATELIMIT_TEST_PARTNERS=required", err)
	default:
		t.Skipf("nutcracker: %v; set RATELIMIT_TEST_PARTNERS=required to make this a failure", err)
	}

	servers := []*Server{Start(t), Start(t)}
	dir := t.TempDir()

	// Another process may take a port between its choice and twemproxy's bind.
	for attempt := 1; ; attempt++ {
		addr, err := startTwemproxy(t, path, dir, servers)
		if err == nil {
			return &Service{Addr: addr, Servers: servers}
		}
		if attempt == 10 {
			t.Fatal(err)
		}
	}
}

// startTwemproxy starts the process and waits until it answers.
func startTwemproxy(t testing.TB, path, dir string, servers []*Server) (addr string, err error) {
	port, err := freePort(false)
	if err != nil {
		return "", err
	}

	statsPort, err := freePort(false)
	if err != nil {
		return "", err
	}

	addr = loopback(port)

	pool := fmt.Sprintf("pool:\n  listen: %s\n  redis: true\n  hash: fnv1a_64\n  hash_tag: \"{}\"\n  distribution: ketama\n  servers:\n", addr)
	for i, s := range servers {
		pool += fmt.Sprintf("   - %s:1 server%d\n", s.Addr, i)
	}
	conf := filepath.Join(dir, "nutcracker.yml")
	if err := os.WriteFile(conf, []byte(pool), 0o600); err != nil {
		return "", err
	}

	cmd := exec.Command(path, "-c", conf, "-a", "127.0.0.1", "-s", fmt.Sprint(statsPort))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	exited, err := startProcess(cmd)
	if err != nil {
		return "", err
	}

	stop := func() {
		_ = cmd.Process.Kill() // fails only for a process that has ended
		<-exited
	}

	if err := poll(patience, func() error { return answersPing(addr) }); err != nil {
		stop()
		return "", fmt.Errorf("%s: %w\n%s", path, err, log.String())
	}
	t.Cleanup(stop)
	return addr, nil
}

// answersPing returns nil if PING is the first command that a server answers.
func answersPing(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}

	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return err
	}
	reply := make([]byte, len("+PONG\r\n"))
	if _, err := conn.Read(reply); err != nil {
		return err
	}

	if string(reply) != "+PONG\r\n" {
		return fmt.Errorf("PING is answered by %q", reply)
	}
	return nil
}
