// Package process runs an example as a process of its own, for tests.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/parallel"
)

// asProgram makes a test binary the example itself, with the race detector if
// the tests have it.
const asProgram = "PROCESS_TEST_AS_PROGRAM"

// Main runs the example where [Start] asks for it, and otherwise the tests.
func Main(m *testing.M, main func()) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	parallel.AtMost(8) // they wait for the processes
	os.Exit(diagtest.Quiet(m).Run())
}

// Patience bounds all waiting.
const Patience = 30 * time.Second

// Process is an example that listens.
type Process struct {
	t         *testing.T
	cmd       *exec.Cmd
	URL, Addr string
	Out, Errs Output
	MayLog    []string // parts of lines that it may write to its standard error
	waited    sync.Once
	exit      error
}

// Output collects what a process writes.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

var listens = regexp.MustCompile(`listens on (http://([^\s,]+))`)

// Start runs the example of a test binary with [Main] on a free port until the test ends. It must write
// nothing to its standard error except for lines of MayLog.
func Start(t *testing.T, args ...string) *Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return StartProgram(t, self, args...)
}

// StartProgram is Start for the program of a file.
func StartProgram(t *testing.T, file string, args ...string) *Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*Patience)
	t.Cleanup(cancel)
	p := &Process{t: t, cmd: exec.CommandContext(ctx, file, append([]string{"-addr", "127.0.0.1:0"}, args...)...)}
	p.cmd.Env = append(os.Environ(), asProgram+"=1", "REDIS_URL=")
	p.cmd.Stdout, p.cmd.Stderr = &p.Out, &p.Errs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails if it has ended
		_ = p.Wait()
		for line := range strings.Lines(p.Errs.String()) {
			if !p.mayLog(line) {
				t.Errorf("%q wrote to standard error:\n%s", args, line)
			}
		}
	})

	p.Says("Ctrl-C")
	found := listens.FindStringSubmatch(p.Out.String())
	if found == nil {
		t.Fatalf("%q does not say where it listens: %q", args, p.Out.String())
	}
	p.URL, p.Addr = found[1], found[2]
	return p
}

func (p *Process) mayLog(line string) bool {
	for _, part := range p.MayLog {
		if strings.Contains(line, part) {
			return true
		}
	}
	return false
}

// Says waits until the process has printed the text.
func (p *Process) Says(text string) {
	p.t.Helper()
	for deadline := time.Now().Add(Patience); !strings.Contains(p.Out.String(), text); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("it wrote %q and %q; want %q", p.Out.String(), p.Errs.String(), text)
		}
	}
}

// Wait waits until the process ends.
func (p *Process) Wait() error {
	p.waited.Do(func() { p.exit = p.cmd.Wait() })
	return p.exit
}

// Signal sends the process a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Send writes the request on a connection of its own and returns every byte of
// the answer.
func (p *Process) Send(request string) string {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(Patience)); err != nil {
		p.t.Fatal(err)
	}
	go io.WriteString(conn, request) // the server may answer and hang up before the end
	answer, err := io.ReadAll(conn)
	if err != nil && !(len(answer) > 0 && errors.Is(err, syscall.ECONNRESET)) {
		p.t.Fatalf("%.80q: %v", request, err)
	}
	return string(answer)
}

// Get sends a GET request.
func (p *Process) Get(target string, headers ...string) string {
	p.t.Helper()
	return p.Send(Request("GET", target, "", headers...))
}

// Request writes an HTTP request with header lines; a body is a form.
func Request(method, target, body string, headers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n", method, target)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n", len(body))
	}
	return b.String() + "\r\n" + body
}

// Status is the status code of an answer, 0 if it has none.
func Status(answer string) int {
	_, rest, _ := strings.Cut(answer, " ")
	code, _, _ := strings.Cut(rest, " ")
	n, _ := strconv.Atoi(strings.TrimSpace(code))
	return n
}

// Header is the value of a header of an answer.
func Header(answer, name string) string {
	head, _, _ := strings.Cut(answer, "\r\n\r\n")
	for line := range strings.SplitSeq(head, "\r\n") {
		if key, value, ok := strings.Cut(line, ": "); ok && strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}
