package redistest

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// impatient is a client that fails where the default client would wait and retry.
func impatient(t testing.TB, s *Server) *redis.Client {
	o := s.Options()
	o.ReadTimeout, o.MaxRetries, o.DialerRetries = 50*time.Millisecond, -1, 1
	c := redis.NewClient(o)
	closeAtCleanup(t, c)
	return c
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
