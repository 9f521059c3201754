package main

import (
	"bytes"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/process"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

func TestMain(m *testing.M) { process.Main(m, main) }

// The lines printed at the start work when pasted into a shell.
func TestPaste(t *testing.T) {
	for _, tool := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}

	p := process.Start(t)
	var script strings.Builder
	for line := range strings.Lines(p.Out.String()) {
		if command, ok := strings.CutPrefix(line, "  "); ok {
			script.WriteString(command)
		}
	}

	cmd := exec.CommandContext(t.Context(), "sh", "-eux")
	cmd.Stdin = strings.NewReader(script.String())
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s\n%v\n%s\n%s", script.String(), err, out, errs.String())
	}

	for _, want := range []string{
		strings.Repeat("200\n", 10) + "429\n", "Retry-After: ", `"violated-policies":["hello"]`,
		"Ratelimit-Remaining: 4", `{"user":"alice"}`, `{"report":"of alice"}`, `"violated-policies":["daily"]`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the lines\n%s\nprint\n%s\nwant %q", script.String(), out, want)
		}
	}

	for _, answer := range []string{p.Get("/me"), p.Get("/report", "Authorization: Bearer x")} {
		limited := process.Header(answer, "RateLimit-Limit") != ""
		if process.Status(answer) != http.StatusUnauthorized || limited || strings.Contains(answer, "{") {
			t.Errorf("without a token: got %q; want 401 alone, without the limit of a user", answer)
		}
	}
	p.Signal(syscall.SIGTERM)
	if err := p.Wait(); err != nil {
		t.Errorf("after SIGTERM: got %v; want exit 0", err)
	}
}

// As the page says, the limit holds when Redis is killed.
func TestKillRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "hunter2")
	p := process.Start(t, "-redis", redis.URL())
	p.MayLog = []string{"ratelimit: redis "}
	if out := p.Out.String(); !strings.Contains(out, "Limits are kept in Redis.") || strings.Contains(out, "hunter2") {
		t.Errorf("it says %q; want Redis and no password", out)
	}

	for i := range 22 {
		if i == 11 {
			redis.Kill()
		}
		want := []int{http.StatusOK, http.StatusTooManyRequests}[min(i/10, 1)]
		if answer := p.Get("/hello"); process.Status(answer) != want {
			t.Errorf("request %d, Redis killed after 11: got %q; want %d", i+1, answer, want)
		}
	}
}
