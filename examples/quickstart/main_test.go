package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// ended runs a quickstart that ends by itself.
func ended(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := program(t, env, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// A mistake is one line that names the value and what would be right.
func TestMistakes(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	taken := busy.Addr().String()
	const flags = flagNames + ", see -h"

	for _, mistake := range []struct {
		args []string
		env  string
		want []string // parts of the line
	}{
		{[]string{"-port", "80"}, "", []string{"-port", flags}},
		{[]string{"-a\nb"}, "", []string{`-a\nb`, flags}},
		{[]string{"-addr"}, "", []string{"-addr", flags}},
		{[]string{"serve"}, "", []string{`"serve"`, flags}},
		{[]string{"-framework", "chi"}, "", []string{`-framework is "chi"`, "nethttp, gin or echo"}},
		{[]string{"-framework", ""}, "", []string{`-framework is ""`, "nethttp, gin or echo"}},
		{[]string{"-headers", "draft7"}, "", []string{`-headers is "draft7"`, "draft6, draft11, both, x or none"}},
		{[]string{"-addr", "8080"}, "", []string{`-addr is "8080"`, "host:port, such as 127.0.0.1:8080"}},
		{[]string{"-addr", ""}, "", []string{`-addr is ""`, "host:port"}},
		{[]string{"-addr", "127.0.0.1:"}, "", []string{`-addr is "127.0.0.1:"`, "host:port"}},
		{[]string{"-addr", "127.0.0.1:65536"}, "", []string{`-addr is "127.0.0.1:65536"`, "host:port"}},
		{[]string{"-addr", "127.0.0.1:http\n"}, "", []string{`-addr is "127.0.0.1:http\n"`, "host:port"}},
		{[]string{"-addr", "192.0.2.1:0"}, "", []string{`-addr is "192.0.2.1:0"`, "of this machine"}},
		{[]string{"-addr", taken}, "", []string{`-addr is "` + taken + `"`, "in use", "port 0"}},
		{[]string{"-redis", "localhost:6379"}, "", []string{`-redis is "localhost:6379"`, "redis://localhost:6379/0"}},
		{[]string{"-redis", "http://localhost"}, "", []string{`-redis is "http://localhost"`, "redis://localhost:6379/0"}},
		{[]string{"-redis", "redis://localhost/x"}, "", []string{`-redis is "redis://localhost/x"`, "redis://localhost:6379/0"}},
		{[]string{"-redis", "redis://localhost/0?nonsense=1"}, "", []string{`?nonsense=1"`, "redis://localhost:6379/0"}},
		{[]string{"-redis", "redis://a:1,,b:2"}, "", []string{`"redis://a:1,,b:2"`, "redis://localhost:6379/0"}},
		{nil, "REDIS_URL=nonsense", []string{`REDIS_URL is "nonsense"`, "redis://localhost:6379/0"}},
		{nil, "JWT_SECRET=hunter", []string{"JWT_SECRET has 6 bytes", "at least 32"}},

		// A password is not told, nor a part of it, whatever is wrong.
		{[]string{"-redis", "redis://user:hunter2@localhost:x"}, "", []string{`-redis is "redis://localhost:x"`}},
		{[]string{"-redis", "redis://user:hunter2/1@localhost"}, "", []string{`-redis is "redis://localhost"`, "%2F"}},
		{[]string{"-redis", "redis://user:hunter2?#@localhost"}, "", []string{`-redis is "redis://localhost"`, "%3F"}},
		{[]string{"-redis", "redis://user:%zzhunter2@localhost"}, "", []string{`-redis is "redis://localhost"`, "%25"}},
		{[]string{"-redis", "user:hunter2@localhost"}, "", []string{`-redis is "localhost"`}},
	} {
		var env []string
		if mistake.env != "" {
			env = []string{mistake.env}
		}
		code, out, errs := ended(t, env, mistake.args...)
		if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "quickstart: ") || !strings.HasSuffix(errs, "\n") {
			t.Errorf("%q %s: got exit %d, %q and error %q; want exit 1 and one line of error", mistake.args, mistake.env, code, out, errs)
		}
		for _, part := range mistake.want {
			if !strings.Contains(errs, part) {
				t.Errorf("%q %s: got %q; want it to say %q", mistake.args, mistake.env, errs, part)
			}
		}
		if strings.Contains(errs, "hunter") {
			t.Errorf("%q: got %q; want no password", mistake.args, errs)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-h", "--help"} {
		code, out, errs := ended(t, nil, flag)
		if code != 0 || errs != "" {
			t.Errorf("%s: got exit %d and error %q; want 0 and none", flag, code, errs)
		}
		for _, name := range []string{"-addr", "-framework", "-redis", "-headers", "-policies", "-inspect", "/debug/ratelimit", "REDIS_URL", "JWT_SECRET", "demo key", "/hello", "/login", "/me", "/report", "/healthz"} {
			if !strings.Contains(out, name) {
				t.Errorf("%s does not explain %s:\n%s", flag, name, out)
			}
		}
	}
}

// What is printed at the start to be pasted works in a shell.
func TestPaste(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	p := start(t, nil)
	var script strings.Builder
	for line := range strings.Lines(p.out.String()) {
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
		"RateLimit-Remaining: 9", `{"hello":"world"}`,
		strings.Repeat("200\n", 9) + "429\n429\n", "Retry-After: ", `"violated-policies":["hello"]`,
		"RateLimit-Remaining: 4", `{"user":"alice"}`, "RateLimit-Policy: 5;w=1",
		`"report":`, `{"status":"ok"}`,
	} {
		if !strings.Contains(strings.ToLower(string(out)), strings.ToLower(want)) {
			t.Errorf("the lines\n%s\nprint\n%s\nwant %q", script.String(), out, want)
		}
	}
}

// A request under way is finished before the process ends.
func TestDrain(t *testing.T) {
	t.Parallel()
	for i, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGTERM} {
		p := start(t, nil, "-framework", frameworkNames[i])
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		body := `{"user":"alice"}`
		whole := request("POST", "/login", body, "Expect: 100-continue")
		io.WriteString(conn, strings.TrimSuffix(whole, body))
		answers := bufio.NewReader(conn)
		// The handler asks for the body: it is at work.
		if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatalf("got %q, %v; want 100 Continue", line, err)
		}
		answers.ReadString('\n')

		p.signal(signal)
		redistest.Eventually(t, patience, "new connections to be refused", func() bool {
			c, err := net.Dial("tcp", p.addr)
			if err == nil {
				c.Close()
			}
			return err != nil
		})
		io.WriteString(conn, body)
		answer, err := io.ReadAll(answers)
		if err != nil || status(string(answer)) != http.StatusOK || !strings.Contains(string(answer), `{"token":"`) {
			t.Errorf("%v: got %q, %v; want a token", signal, answer, err)
		}
		if err := p.wait(); err != nil {
			t.Errorf("%v: got %v; want exit 0", signal, err)
		}
		if !strings.Contains(p.out.String(), "Draining") {
			t.Errorf("%v: it says %q; want a word on draining", signal, p.out.String())
		}
	}
}

// Two servers on one Redis, of two frameworks, share limits and take each
// other's tokens. What they print has no password.
func TestShared(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "hunter2")
	servers := []*process{
		start(t, nil, "-redis", redis.URL(), "-framework", "gin", "-headers", "draft11"),
		start(t, []string{"REDIS_URL=" + redis.URL()}, "-framework", "echo", "-headers", "draft11"),
	}
	for _, p := range servers {
		if out := p.out.String(); !strings.Contains(out, "Limits are kept in Redis at redis://"+redis.Addr) || strings.Contains(out, "hunter2") {
			t.Errorf("it says %q; want the address of the Redis and no password", out)
		}
	}
	for i := range 10 {
		if answer := servers[i%2].get("/hello"); status(answer) != http.StatusOK {
			t.Errorf("hello %d: got %q; want 200", i+1, answer)
		}
	}
	for i, p := range servers {
		if answer := p.get("/hello"); status(answer) != http.StatusTooManyRequests {
			t.Errorf("hello %d: got %q; want 429", i+11, answer)
		}
	}

	answer := servers[0].send(request("POST", "/login", `{"user":"alice"}`))
	_, token, _ := strings.Cut(body(answer), `{"token":"`)
	token, _, _ = strings.Cut(token, `"`)
	alice := "Authorization: Bearer " + token
	for i, want := range []string{`"daily";r=99`, `"daily";r=98`, `"daily";r=97`} {
		answer := servers[i%2].get("/me", alice)
		if status(answer) != http.StatusOK || !strings.Contains(header(answer, "RateLimit"), want) {
			t.Errorf("me %d: got %q; want 200 and %s", i+1, answer, want)
		}
	}
	bob := as(t, "bob")
	var passed atomic.Int64
	var asked sync.WaitGroup
	began := time.Now()
	for i := range 30 {
		asked.Go(func() {
			if status(servers[i%2].get("/me", bob)) == http.StatusOK {
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

// A Redis that is not there stops nobody: the server says so, once and without
// the password, and limits by itself.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	const away = "127.0.0.1:1" // where nobody listens
	p := start(t, nil, "-redis", "redis://user:hunter2@"+away)
	if out := p.out.String(); strings.Count(out, "until Redis works: redisstore: redis at "+away+" does not answer") != 1 || strings.Contains(out, "hunter2") {
		t.Errorf("it says %q; want one line on the Redis and no password", out)
	}
	for i := range 11 {
		want := http.StatusOK
		if i == 10 {
			want = http.StatusTooManyRequests
		}
		if answer := p.get("/hello"); status(answer) != want {
			t.Errorf("hello %d: got %q; want %d", i+1, answer, want)
		}
	}
	if errs := p.errs.String(); strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "WARN ratelimit: redis does not answer code=redis-unreachable server="+away) {
		t.Errorf("after 11 requests: got\n%s\nwant one line, of the store", errs)
	}
}

// A key of one's own makes tokens worthless elsewhere.
func TestOwnKey(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"JWT_SECRET=" + strings.Repeat("k", minKey)})
	if out := p.out.String(); strings.Contains(out, "demo") || !strings.Contains(out, "signed with JWT_SECRET.") {
		t.Errorf("it says %q; want JWT_SECRET and no demo key", out)
	}
	if got := status(p.get("/me", as(t, "alice"))); got != http.StatusUnauthorized {
		t.Errorf("a token of the demo key: got %d; want 401", got)
	}
}

func TestURL(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:80": "http://127.0.0.1:80",
		"0.0.0.0:80":   "http://localhost:80",
		"[::]:80":      "http://localhost:80",
		"[::1]:80":     "'http://[::1]:80'",
	} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := shellURL(a); got != want {
			t.Errorf("%s: got %s; want %s", addr, got, want)
		}
	}
}

func TestReadUser(t *testing.T) {
	for body, want := range map[string]error{
		`{"user":"alice"}`: nil,
		` {"user":"` + strings.Repeat("a", 64) + "\"}\r\n": nil,
		`{"user":"` + strings.Repeat("é", 33) + `"}`:       errNoUser,
		`{"user":null}`:                  errNoUser,
		`{}`:                             errNoUser,
		`null`:                           errNoUser,
		``:                               errNotLogin,
		`{"user":7}`:                     errNotLogin,
		`["alice"]`:                      errNotLogin,
		`{"user":"alice"}{"user":"bob"}`: errNotLogin,
		`{"user":"alice"` + strings.Repeat(" ", maxLogin):     errTooLarge,
		strings.Repeat("[", maxLogin):                         errNotLogin,
		`{"user":"alice","x":` + strconv.Quote("other") + `}`: nil,
	} {
		if _, err := readUser(strings.NewReader(body)); !errors.Is(err, want) {
			t.Errorf("%.80q: got %v; want %v", body, err, want)
		}
	}
}
