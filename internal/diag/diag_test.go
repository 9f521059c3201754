package diag_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

func newLog() (*diag.Log, *bytes.Buffer) {
	var out bytes.Buffer
	return &diag.Log{Logger: slog.New(slog.NewTextHandler(&out, nil))}, &out
}

// The first occurrence is logged, then one line every five minutes while the problem lasts.
func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := newLog()
		for range 601 { // ten minutes, including both ends
			log.Report(diag.PolicyFailed, "login", "Key failed", "policy", "login", "error", "no claims")
			time.Sleep(time.Second)
		}

		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("got %d lines; want 3:\n%s", len(lines), out)
		}

		first := `level=WARN msg="ratelimit: Key failed" code=policy-failed policy=login error="no claims" help=`
		if !strings.Contains(lines[0], first) || !strings.Contains(lines[0], "docs/troubleshooting.md#policy-failed") {
			t.Errorf("got %s; want it to contain %s and the page", lines[0], first)
		}
		if !strings.Contains(lines[1], "repeated=299") {
			t.Errorf("got %s; want repeated=299", lines[1])
		}
	})
}

func TestCausesApart(t *testing.T) {
	log, out := newLog()
	for range 3 {
		log.Report(diag.PolicyFailed, "login", "Key failed")
		log.Report(diag.PolicyFailed, "search", "Key failed")
		log.Report(diag.RedisAuth, "login", "wrong password")
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("got %d lines; want 3:\n%s", n, out)
	}
	if !strings.Contains(out.String(), `level=ERROR msg="ratelimit: wrong password"`) {
		t.Errorf("got %s; want redis-auth at level ERROR", out)
	}
}

// The number of causes in memory and in the log is bounded.
func TestCausesBounded(t *testing.T) {
	log, out := newLog()
	for i := range 10_000 {
		log.Report(diag.PolicyFailed, fmt.Sprint(i), "Key failed")
	}
	if n := strings.Count(out.String(), "\n"); n != 257 {
		t.Errorf("got %d lines; want 256 and one for the rest", n)
	}
}

// After Forget a problem is logged again.
func TestForget(t *testing.T) {
	log, out := newLog()
	for range 2 {
		log.Report(diag.RedisUnreachable, "a", "redis does not answer")
	}
	log.Forget(diag.RedisUnreachable, "a")
	log.Forget(diag.RedisUnreachable, "never seen")
	log.Report(diag.RedisUnreachable, "a", "redis does not answer")
	if strings.Count(out.String(), "\n") != 2 || strings.Contains(out.String(), "repeated") {
		t.Errorf("after Forget: got\n%s\nwant a second line without repetitions", out)
	}
}
