package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/examples/internal/process"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// A mistake is one line that names the value and says what is right.
func TestMistakes(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	taken := busy.Addr().String()
	const flags = "the flags are -addr, -framework and -redis, see -h"

	for _, mistake := range []struct {
		args []string
		want []string // parts of the line
	}{
		{[]string{"-port", "80"}, []string{"-port", flags}},
		{[]string{"-addr"}, []string{"-addr", flags}},
		{[]string{"serve"}, []string{`"serve"`, flags}},
		{[]string{"-framework", "chi"}, []string{`"chi"`, "-framework", "want nethttp, gin, echo or echov5"}},
		{[]string{"-addr", "8080"}, []string{"-addr", "8080", "such as 127.0.0.1:8081"}},
		{[]string{"-addr", "127.0.0.1:65536"}, []string{"-addr", "65536", "such as 127.0.0.1:8081"}},
		{[]string{"-addr", taken}, []string{"-addr", taken, "in use", "want a free port"}},
		{[]string{"-redis", "localhost:6379"}, []string{"-redis", "redis://localhost:6379/0"}},
		{[]string{"-redis", "redis://user:hunter2@localhost:x"}, []string{"-redis", `"localhost:x"`}},
		{[]string{"-redis", "user:hunter2@localhost"}, []string{"-redis", "redis://localhost:6379/0"}},
	} {
		code, out, errs := process.Run(t, mistake.args...)
		if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "quickstart: ") {
			t.Errorf("%q: got exit %d, %q and error %q; want exit 1 and one line of error", mistake.args, code, out, errs)
		}
		for _, part := range mistake.want {
			if !strings.Contains(errs, part) {
				t.Errorf("%q: got %q; want %q in it", mistake.args, errs, part)
			}
		}

		if strings.Contains(errs, "hunter") {
			t.Errorf("%q: got %q; want no password", mistake.args, errs)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	code, out, errs := process.Run(t, "-h")
	if code != 0 || errs != "" {
		t.Errorf("got exit %d and error %q; want 0 and none", code, errs)
	}
	for _, name := range []string{"-addr", "-framework", "-redis", "REDIS_URL", "/hello", "/login", "/me", "/report", "/healthz"} {
		if !strings.Contains(out, name) {
			t.Errorf("-h does not explain %s:\n%s", name, out)
		}
	}
}

// The lines printed at the start work when pasted into a shell.
func TestPaste(t *testing.T) {
	t.Parallel()
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
		"Ratelimit-Remaining: 4", `{"user":"alice"}`, `{"report":"of alice"}`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the lines\n%s\nprint\n%s\nwant %q", script.String(), out, want)
		}
	}
}

// A request that has begun is finished before the process ends.
func TestDrain(t *testing.T) {
	t.Parallel()
	for i, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGTERM} {
		p := process.Start(t, "-framework", frameworkNames[i])
		conn, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(process.Patience)); err != nil {
			t.Fatal(err)
		}

		body := "user=alice"
		whole := process.Request("POST", "/login", body, "Expect: 100-continue")
		io.WriteString(conn, strings.TrimSuffix(whole, body))
		answers := bufio.NewReader(conn)

		// The handler reads the body now.
		if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatalf("got %q, %v; want 100 Continue", line, err)
		}
		answers.ReadString('\n')

		p.Signal(signal)
		redistest.Eventually(t, process.Patience, "new connections to be refused", func() bool {
			c, err := net.Dial("tcp", p.Addr)
			if err == nil {
				c.Close()
			}
			return err != nil
		})

		io.WriteString(conn, body)
		answer, err := io.ReadAll(answers)
		if err != nil || process.Status(string(answer)) != http.StatusOK || strings.Count(process.Body(string(answer)), ".") != 2 {
			t.Errorf("%v: got %q, %v; want a token", signal, answer, err)
		}
		if err := p.Wait(); err != nil {
			t.Errorf("%v: got %v; want exit 0", signal, err)
		}
	}
}

// Two servers on one Redis, with different frameworks, share limits and accept
// each other's tokens.
func TestShared(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "hunter2")
	servers := []*process.Process{
		process.Start(t, "-redis", redis.URL(), "-framework", "gin"),
		process.Start(t, "-redis", redis.URL(), "-framework", "echo"),
	}

	for _, p := range servers {
		p.MayLog = []string{"ratelimit: redis "}
		if out := p.Out.String(); !strings.Contains(out, "Limits are kept in Redis.") || strings.Contains(out, "hunter2") {
			t.Errorf("it says %q; want Redis and no password", out)
		}
	}

	for i := range 10 {
		if answer := servers[i%2].Get("/hello"); process.Status(answer) != http.StatusOK {
			t.Errorf("hello %d: got %q; want 200", i+1, answer)
		}
	}

	for i, p := range servers {
		if answer := p.Get("/hello"); process.Status(answer) != http.StatusTooManyRequests {
			t.Errorf("hello %d: got %q; want 429", i+11, answer)
		}
	}

	token := process.Body(servers[0].Post("/login", "user=alice"))
	for i := range 3 {
		answer := servers[i%2].Get("/me", "Authorization: Bearer "+token)
		if process.Status(answer) != http.StatusOK || process.Body(answer) != `{"user":"alice"}`+"\n" {
			t.Errorf("me %d: got %q; want 200 and alice", i+1, answer)
		}
	}

	bob := as(t, "bob")
	var passed atomic.Int64
	var asked sync.WaitGroup
	began := time.Now()
	for i := range 30 {
		asked.Go(func() {
			if process.Status(servers[i%2].Get("/me", bob)) == http.StatusOK {
				passed.Add(1)
			}
		})
	}

	asked.Wait()
	most := 5 + int64(time.Since(began)/(200*time.Millisecond))
	if n := passed.Load(); n < 5 || n > most {
		t.Errorf("of 30 at once %d passed; want 5 to %d", n, most)
	}
}

// Without its Redis the server says so, once and without the password, and
// limits by itself.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	const away = "127.0.0.1:1" // a port on which nothing listens
	p := process.Start(t, "-redis", "redis://user:hunter2@"+away)
	p.MayLog = []string{"ratelimit: redis "}
	if out := p.Out.String(); strings.Count(out, "until Redis works: redisstore: redis at "+away+" does not answer") != 1 || strings.Contains(out, "hunter2") {
		t.Errorf("it says %q; want one line on the Redis and no password", out)
	}

	for i := range 11 {
		want := http.StatusOK
		if i == 10 {
			want = http.StatusTooManyRequests
		}
		if answer := p.Get("/hello"); process.Status(answer) != want {
			t.Errorf("hello %d: got %q; want %d", i+1, answer, want)
		}
	}

	if errs := p.Errs.String(); strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "WARN ratelimit: redis does not answer code=redis-unreachable server="+away) {
		t.Errorf("after 11 requests: got\n%s\nwant one line, of the store", errs)
	}
}
