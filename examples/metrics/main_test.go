package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// child makes this test binary run the program.
const child = "METRICS_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		main()
		return
	}
	os.Exit(diagtest.Quiet(m).Run())
}

const patience = 30 * time.Second

// process is a server under test.
type process struct {
	cmd          *exec.Cmd
	api, metrics string // URLs

	mu  sync.Mutex
	out bytes.Buffer
	err bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// program starts the program. An argument REDIS_URL=... sets the environment.
func program(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	env := append(os.Environ(), child+"=1", "REDIS_URL=")
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		if strings.HasPrefix(arg, "REDIS_URL=") {
			env = append(env, arg)
			return true
		}
		return false
	})

	p := &process{cmd: exec.CommandContext(t.Context(), exe, args...)}
	p.cmd.Env = env
	p.cmd.Stdout, p.cmd.Stderr = p, &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// end waits for the process and returns its exit code and output.
func (p *process) end(t *testing.T) (code int, out, errs string) {
	t.Helper()
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode(), p.text(), p.err.String()
}

var listens = regexp.MustCompile(`on (http://\S+?), its metrics are on (http://\S+)`)

// start starts a server on free ports and waits until it listens.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := program(t, append([]string{"-addr", "127.0.0.1:0", "-metrics", "127.0.0.1:0"}, args...)...)
	redistest.Eventually(t, patience, "the server to listen", func() bool { return strings.Contains(p.text(), "Ctrl-C") })
	found := listens.FindStringSubmatch(p.text())
	if found == nil {
		t.Fatalf("got %q; want it to say where it listens", p.text())
	}
	p.api, p.metrics = found[1], found[2]
	return p
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	client := http.Client{Timeout: patience}
	response, err := client.Get(url)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(b)
}

// use sends requests that are delayed, allowed and denied.
func (p *process) use(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { get(t, p.api+"/slow") })
	}
	all.Wait()
	for range 1000 {
		if status, _ := get(t, p.api+"/hello"); status == http.StatusTooManyRequests {
			return
		}
	}
	t.Fatal("none of 1000 requests was denied")
}

// The metrics match the requests, until the server is stopped. The API has no /metrics.
func TestServer(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.use(t)
	status, text := get(t, p.metrics)
	if status != http.StatusOK {
		t.Fatalf("GET %s: got %d; want 200", p.metrics, status)
	}

	seen := scraped(t, text).values
	at := func(policy, outcome string) float64 {
		return seen[fmt.Sprintf("ratelimit_decisions_total{ratelimit_outcome=%q,ratelimit_policy=%q}", outcome, policy)]
	}
	if allowed, denied := at("client", "allowed"), at("client", "denied"); allowed < 60 || denied != 1 {
		t.Errorf("client: got %v allowed, %v denied; want at least 60, and 1", allowed, denied)
	}
	if allowed, shadow, denied := at("tight", "allowed"), at("tight", "shadow_denied"), at("tight", "denied"); allowed < 20 || shadow < 1 || denied != 0 {
		t.Errorf("tight: got %v allowed, %v shadow denied, %v denied; want at least 20, some, and none", allowed, shadow, denied)
	}

	if passed := at("slow", "allowed") + at("slow", "delayed"); passed != 3 { // how many wait depends on how fast they come
		t.Errorf("slow: got %v; want 3", passed)
	}
	if status, _ := get(t, p.api+"/metrics"); status == http.StatusOK {
		t.Error("the API serves /metrics; want that on its own address only")
	}

	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := p.end(t); code != 0 || errs != "" {
		t.Errorf("after SIGTERM: got exit %d, error %q; want 0, none", code, errs)
	}
}

// The server prints where limits are kept, and keeps them there: in the Redis of the flag,
// else of the environment, else in itself.
func TestWhereLimitsAreKept(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url := "redis://" + server.Addr + "/0"
	for _, tt := range []struct {
		args []string
		want string
		keys int
	}{
		{nil, "Limits are kept in this process; -redis or REDIS_URL shares them", 0},
		{[]string{"REDIS_URL=" + url}, "Limits are kept in the Redis of REDIS_URL.", 2},
		{[]string{"-redis", url}, "Limits are kept in the Redis of -redis.", 2},
		{[]string{"REDIS_URL=" + url, "-redis", ""}, "Limits are kept in this process", 0},
	} {
		if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		p := start(t, tt.args...)
		if !strings.Contains(p.text(), tt.want) {
			t.Errorf("%q: got %q; want %q", tt.args, p.text(), tt.want)
		}

		if status, _ := get(t, p.api+"/hello"); status != http.StatusOK {
			t.Errorf("%q: got %d; want 200", tt.args, status)
		}
		keys, err := server.Client().Keys(t.Context(), "rl:{ip:*").Result() // not that of Ping
		if err != nil || len(keys) != tt.keys {
			t.Errorf("%q: got keys %q in Redis, %v; want %d", tt.args, keys, err, tt.keys)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want []string // parts of the line
	}{
		{[]string{"-port", "80"}, []string{"-port", wantFlags}},
		{[]string{"serve"}, []string{`"serve" is not a flag`, wantFlags}},
		{[]string{"-addr", "nowhere"}, []string{`-addr is "nowhere"`, "want host:port"}},
		{[]string{"-addr", "127.0.0.1:0", "-metrics", "127.0.0.1:http-of-old"}, []string{`-metrics is "127.0.0.1:http-of-old"`, "want host:port"}},
		{[]string{"-redis", "localhost:6379"}, []string{"-redis", "redis://localhost:6379/0"}},
		{[]string{"REDIS_URL=localhost:6379"}, []string{"REDIS_URL is not a URL", "redis://localhost:6379/0"}},
		{[]string{"-redis", "redis://user:hunter2@localhost:x"}, []string{"-redis", "redis://localhost:6379/0"}},
	} {
		code, out, errs := program(t, tt.args...).end(t)
		if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "metrics: ") {
			t.Errorf("%q: got exit %d, %q and error %q; want exit 1 and one line of error", tt.args, code, out, errs)
		}
		for _, part := range tt.want {
			if !strings.Contains(errs, part) {
				t.Errorf("%q: got %q; want it to say %q", tt.args, errs, part)
			}
		}

		if strings.Contains(errs, "hunter") {
			t.Errorf("%q: got %q; want no password", tt.args, errs)
		}
	}
}

// Without its Redis the server says so, and limits by itself.
func TestRedisDown(t *testing.T) {
	t.Parallel()
	const want = "Limits are kept in this process until Redis works: redisstore: redis at 127.0.0.1:1 does not answer: connection refused;"
	p := start(t, "-redis", "redis://user:hunter2@127.0.0.1:1")
	if out := p.text(); !strings.Contains(out, want) || strings.Contains(out, "hunter2") {
		t.Errorf("got %q; want %q and no password", out, want)
	}
	if code, body := get(t, p.api+"/hello"); code != http.StatusOK {
		t.Errorf("GET /hello: got %d %q; want 200", code, body)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	code, out, errs := program(t, "-h").end(t)
	if code != 0 || out != usage || errs != "" {
		t.Errorf("got exit %d, %q and error %q; want the usage", code, out, errs)
	}
}
