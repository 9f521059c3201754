package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/diagtest"
)

// asProgram tells the test binary to be the quickstart itself, so that what
// runs is the program as a process, with the race detector if the tests have it.
const asProgram = "QUICKSTART_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(diagtest.Quiet(m).Run())
}

// patience is for busy machines; nothing takes nearly as long.
const patience = 30 * time.Second

// frameworkNames in the order in which answers are compared.
var frameworkNames = []string{"nethttp", "gin", "echo"}

// program is a quickstart to run, in an environment without the variables that
// it reads but for those given.
func program(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "REDIS_URL=") && !strings.HasPrefix(v, "JWT_SECRET=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(append(cmd.Env, asProgram+"=1"), env...)
	return cmd
}

// process is a quickstart that listens.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	addr string
	url  string
	out  output
	errs output
	logs []diag.Code // that it may log

	waited sync.Once
	exit   error
}

// output collects what a process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

var listens = regexp.MustCompile(`listens on (http://(\S+))`)

// start runs a quickstart on a free port until the test ends. By then it must
// have written nothing to its standard error but that Redis went and came, and
// what a test expects in logs.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: program(t, env, append([]string{"-addr", "127.0.0.1:0"}, args...)...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails when it has ended, as it may
		_ = p.wait()
		for line := range strings.Lines(p.errs.String()) {
			expected := func(c diag.Code) bool { return strings.Contains(line, " code="+string(c)+" ") }
			if !strings.Contains(line, "ratelimit: redis ") && !slices.ContainsFunc(p.logs, expected) {
				t.Errorf("%q wrote to standard error:\n%s", args, line)
			}
		}
	})
	for deadline := time.Now().Add(patience); !strings.Contains(p.out.String(), "Ctrl-C"); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q does not start; it wrote %q and %q", args, p.out.String(), p.errs.String())
		}
	}
	found := listens.FindStringSubmatch(p.out.String())
	if found == nil {
		t.Fatalf("%q does not say where it listens: %q", args, p.out.String())
	}
	p.url, p.addr = found[1], found[2]
	return p
}

func (p *process) wait() error {
	p.waited.Do(func() { p.exit = p.cmd.Wait() })
	return p.exit
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// send writes the request as it stands on a connection of its own and returns
// every byte of the answer.
func (p *process) send(request string) string {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		p.t.Fatal(err)
	}
	go io.WriteString(conn, request) // the server may answer and hang up before the end
	answer, err := io.ReadAll(conn)
	if err != nil && !(len(answer) > 0 && errors.Is(err, syscall.ECONNRESET)) {
		p.t.Fatalf("%.80q: %v", request, err)
	}
	return string(answer)
}

// request writes an HTTP request, its headers given as lines.
func request(method, target, body string, headers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n", method, target)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	return b.String() + "\r\n" + body
}

// get is send for the usual case.
func (p *process) get(target string, headers ...string) string {
	p.t.Helper()
	return p.send(request("GET", target, "", headers...))
}

// status is the status code of an answer, 0 if it has none.
func status(answer string) int {
	_, rest, _ := strings.Cut(answer, " ")
	code, _, _ := strings.Cut(rest, " ")
	n, _ := strconv.Atoi(strings.TrimSpace(code))
	return n
}

// header is the value of a header of an answer.
func header(answer, name string) string {
	head, _, _ := strings.Cut(answer, "\r\n\r\n")
	for line := range strings.SplitSeq(head, "\r\n") {
		if key, value, ok := strings.Cut(line, ": "); ok && strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}

// body is what follows the headers of an answer.
func body(answer string) string {
	_, b, _ := strings.Cut(answer, "\r\n\r\n")
	return b
}

// claims are those of a good token, with changes.
func claims(user string, changes ...func(jwt.MapClaims)) jwt.MapClaims {
	c := jwt.MapClaims{"iss": issuer, "sub": user, "exp": time.Now().Add(time.Hour).Unix()}
	for _, change := range changes {
		change(c)
	}
	return c
}

// bearer is an Authorization line with a token.
func bearer(t *testing.T, method jwt.SigningMethod, key any, c jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, c).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return "Authorization: Bearer " + token
}

// as is an Authorization line for a user, with the demo key.
func as(t *testing.T, user string) string {
	t.Helper()
	return bearer(t, jwt.SigningMethodHS256, []byte(demoKey), claims(user))
}
