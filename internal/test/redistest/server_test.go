package redistest

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// impatient is a client that fails where the default client would wait and retry.
func impatient(t testing.TB, s *Server) *redis.Client {
	o := s.Options()
	o.ReadTimeout, o.MaxRetries, o.DialerRetries = 50*time.Millisecond, -1, 1
	c := redis.NewClient(o)
	closeAtCleanup(t, c)
	return c
}

// A server is killed, comes back on its port, is paused and goes on.
func TestServerLife(t *testing.T) {
	ctx := t.Context()
	s := Start(t)
	c := impatient(t, s)

	if err := s.Client().Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	first := s.PID()

	s.Kill()
	s.Kill() // the second has nothing to do
	if pid := s.PID(); pid != 0 {
		t.Errorf("PID after Kill: got %d; want 0", pid)
	}
	if err := c.Ping(ctx).Err(); err == nil {
		t.Error("PING after Kill: got an answer")
	}

	s.Restart()
	if pid := s.PID(); pid == 0 || pid == first {
		t.Errorf("PID after Restart: got %d; want one that is not %d", pid, first)
	}
	if err := s.Client().Get(ctx, "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET after Restart: got %v; want %v, as nothing is persisted", err, redis.Nil)
	}
	if n := strings.Count(s.Log(), "Ready to accept connections"); n != 2 {
		t.Errorf("the log has %d starts; want 2:\n%s", n, s.Log())
	}

	s.Pause()
	var netErr interface{ Timeout() bool }
	if err := c.Ping(ctx).Err(); !errors.As(err, &netErr) || !netErr.Timeout() {
		t.Errorf("PING after Pause: got %v; want a timeout", err)
	}
	s.Resume()
	// Under load an answer may take longer than this client's patience.
	if err := s.Client().Ping(ctx).Err(); err != nil {
		t.Errorf("PING after Resume: got %v", err)
	}
	if err := s.Client().Do(ctx, "debug", "sleep", "0").Err(); err != nil {
		t.Errorf("DEBUG: got %v", err)
	}
}

// Extra arguments reach the server, and its clients know of the password.
func TestServerPassword(t *testing.T) {
	s := Start(t, "--requirepass", "x y@:/", "--maxmemory", "8mb")
	o, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	fromURL := redis.NewClient(o)
	closeAtCleanup(t, fromURL)
	for name, c := range map[string]*redis.Client{"Client": s.Client(), "URL": fromURL} {
		if got, err := c.ConfigGet(t.Context(), "maxmemory").Result(); err != nil || got["maxmemory"] != "8388608" {
			t.Errorf("%s: CONFIG GET maxmemory: got %v, %v; want 8388608", name, got, err)
		}
	}
}

// When the test is over nothing is left, even of a paused server.
func TestServerCleanup(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	var s *Server
	t.Run("paused", func(t *testing.T) {
		s = Start(t)
		if err := s.Client().Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		s.Pause()
	})
	if s == nil {
		t.Skip("no server")
	}
	if pid := s.PID(); pid != 0 {
		t.Errorf("process %d is alive", pid)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: got %v; want %v", err, os.ErrNotExist)
	}
	goleak.VerifyNone(t, ignore)
}

// A server that does not come up says why.
func TestServerThatFails(t *testing.T) {
	Need(t)
	start := time.Now()
	_, err := boot(t, options{args: []string{"--no-such-option", "1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("got %v; want an error with the server's own words", err)
	}
	if d := time.Since(start); d > patience/2 {
		t.Errorf("it took %v to notice", d)
	}
}

// A port that another takes first is not the end.
func TestServerPortTaken(t *testing.T) {
	other := Start(t)
	port := strings.TrimPrefix(other.Addr, "127.0.0.1:")
	_, err := tryBoot(t, options{args: []string{"--port", port}})
	if !errors.Is(err, errPortTaken) {
		t.Errorf("got %v; want %v", err, errPortTaken)
	}
}

// orphanEnv makes this test binary run TestServerOutlivedByNothing's inner half.
const orphanEnv = "REDISTEST_ORPHAN"

// A test binary that is killed takes its servers with it.
func TestServerOutlivedByNothing(t *testing.T) {
	if os.Getenv(orphanEnv) != "" {
		s := Start(t)
		// The line that the outer half waits for, before it kills this process.
		if _, err := os.Stdout.WriteString("\nserver at " + s.Addr + "\n"); err != nil {
			t.Fatal(err)
		}
		<-t.Context().Done() // never, within a test's own body
		return
	}
	Need(t)
	if procAttr() == nil {
		t.Skip("this system cannot tie a process to its parent's life")
	}
	inner := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
	inner.Env = slices.Concat(os.Environ(), []string{orphanEnv + "=1", "TMPDIR=" + t.TempDir()})
	out, err := inner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := inner.Start(); err != nil {
		t.Fatal(err)
	}
	addr, found := "", false
	for lines := bufio.NewScanner(out); !found && lines.Scan(); {
		addr, found = strings.CutPrefix(lines.Text(), "server at ")
	}
	if err := inner.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = inner.Wait() // killed
	if !found {
		t.Fatal("the inner test named no server")
	}
	Eventually(t, patience, "the server to die", func() bool {
		c := impatient(t, &Server{Addr: addr})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return c.Ping(ctx).Err() != nil
	})
}
