//go:build unix

package readme

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/test/process"
)

// notRun are the commands that the test does not run, by how they begin.
var notRun = []struct{ command, reason string }{
	{"make ", "runs this test, or takes minutes"},
	{"go test ", "runs this test, or measures"},
	{"go -C benchmarks ", "measures"},
	{"go run ./outbound/simulate -random", "takes a minute"},
	{"version=", "changes each go.mod"},
	{"git tag ", "sets tags"},
	{"for module in ", "needs the tags"},
	{"ratelimit ", "TestDocs of cmd/ratelimit runs it"},
	{"redis-cli ", "needs a Redis on the default port"},
}

// flags are added to a command to shorten it, or to give a server free ports.
var flags = map[string]string{
	"go run ./examples/quickstart": " -addr 127.0.0.1:0",
	"go run ./examples/policies":   " -addr 127.0.0.1:0",
	"go run ./examples/metrics":    " -addr 127.0.0.1:0 -metrics 127.0.0.1:0",
	"go run ./examples/worker":     " -tasks 4",
}

// The commands of a page run from top to bottom, at the root of the repository.
// What a page shows of their output is what they print.
func TestCommands(t *testing.T) {
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}

	for _, page := range pages {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			s := &shell{t: t, dir: root, temp: t.TempDir()}
			for _, b := range blocks(t, page) {
				switch {
				case b.language == "console":
					s.console(b)
				case b.language == "text" && s.output != "":
					if !strings.Contains(s.output, b.text) {
						t.Errorf("%s: the command printed\n%s\nwithout\n%s", b, s.output, b.text)
					}
					s.output = ""
				case b.language == "go" && strings.HasPrefix(b.text, "package main"):
					s.program(b)
				case b.language == "sh" && !skip(t, b):
					s.block(b)
				}
			}
		})
	}
}

// Each command of notRun is on a page.
func TestNotRun(t *testing.T) {
	for _, c := range notRun {
		isThere := func(b block) bool { return b.language == "sh" && begins(b, c.command) }
		if !slices.ContainsFunc(pages, func(page string) bool { return slices.ContainsFunc(blocks(t, page), isThere) }) {
			t.Errorf("no page has a command %q: remove it from notRun", c.command)
		}
	}
}

// begins reports whether a line of a block begins with the text.
func begins(b block, text string) bool { return strings.Contains("\n"+b.text, "\n"+text) }

var targets = regexp.MustCompile(`(?m)^make .*$`)

// skip reports whether the commands of a block are in notRun. Their syntax,
// their make targets and their folders are checked all the same.
func skip(t *testing.T, b block) bool {
	found := false
	for _, c := range notRun {
		found = found || begins(b, c.command)
	}
	if !found {
		return false
	}

	dry := []string{b.text}
	for _, target := range targets.FindAllString(b.text, -1) {
		dry = append(dry, target+" -n")
	}

	for i, command := range dry {
		args := []string{"-c", command}
		if i == 0 {
			args = append([]string{"-n"}, args...)
		}
		cmd := exec.CommandContext(t.Context(), "bash", args...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %v\n%s", b, command, err, out)
		}
	}

	for _, word := range strings.Fields(b.text) {
		if strings.HasPrefix(word, "./") && !strings.Contains(word, "...") {
			if _, err := os.Stat(filepath.Join(root, word)); err != nil {
				t.Errorf("%s: %v", b, err)
			}
		}
	}

	return true
}

// shell runs the commands of one page.
type shell struct {
	t         *testing.T
	dir, temp string
	addr      string // of the server that runs, for 127.0.0.1:8080 on the page
	started   time.Time
	token     string // that the server printed
	output    string // of the last block that ended
}

// program writes a program of the page to hello/main.go, beside a clone, and
// goes to its folder.
func (s *shell) program(b block) {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}

	s.addr = l.Addr().String()
	l.Close()
	clone, err := filepath.Abs(root)
	if err != nil {
		s.t.Fatal(err)
	}

	s.dir = filepath.Join(s.temp, "hello")
	for _, err := range []error{
		os.Symlink(clone, filepath.Join(s.temp, "ratelimit")),
		os.Mkdir(s.dir, 0o700),
		os.WriteFile(filepath.Join(s.dir, "main.go"), []byte(s.here(b.text)), 0o600),
	} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

var gitClone = regexp.MustCompile(`(?m)^git clone .*$`)

// here puts the addresses and folders of this run into a text of the page, and the clone that
// is there.
func (s *shell) here(text string) string {
	if s.addr != "" {
		text = strings.ReplaceAll(text, "127.0.0.1:8080", s.addr)
	}
	text = strings.ReplaceAll(text, "TOKEN_FROM_THE_URL", s.token)
	text = gitClone.ReplaceAllString(text, "test -d ../ratelimit")
	return strings.ReplaceAll(text, "/tmp/", s.temp+"/")
}

var serves = regexp.MustCompile(`(?m)^go run (\.|\./examples/(quickstart|policies|metrics)\b.*)$`)

// block runs the commands of a block. One that serves runs until the next one
// does, or the page ends.
func (s *shell) block(b block) {
	s.t.Helper()
	text := b.text
	if strings.HasPrefix(text, "go run ./") {
		s.dir = root
	}
	if s.dir == root && strings.Contains(text, "go mod ") {
		s.t.Errorf("%s: would change the go.mod of the repository; put it below a program, which has a folder of its own", b)
		return
	}

	for command, extra := range flags {
		text = regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(command)+`\b.*$`).ReplaceAllString(text, "$0"+extra)
	}
	if serves.MatchString(text) {
		s.serve(b, s.here(text))
		return
	}

	s.output = s.run(b, text)
}

func (s *shell) run(b block, text string) string {
	s.t.Helper()
	cmd := s.command(s.t.Context(), s.here(text))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		s.t.Errorf("%s: %v\n%s%s", b, err, out, errs.String())
	}
	return string(out)
}

func (s *shell) command(ctx context.Context, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	cmd.Dir = s.dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "REDIS_URL=") && !strings.HasPrefix(v, "JWT_SECRET=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if s.dir != root {
		cmd.Env = append(cmd.Env, "GOWORK=off")
	}
	return cmd
}

var (
	listens = regexp.MustCompile(`http://(127\.0\.0\.1:\d+)`)
	tokens  = regexp.MustCompile(`token=(\S+)`)
)

// serve starts a server and waits until it accepts connections.
func (s *shell) serve(b block, text string) {
	s.t.Helper()
	ctx, end := context.WithCancel(context.Background())
	cmd := s.command(ctx, text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = patience
	var out process.Output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}

	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	s.t.Cleanup(func() { end(); <-exited })

	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		select {
		case <-exited:
			s.t.Fatalf("%s: the server ended\n%s", b, out.String())
		default:
		}

		addr := s.addr
		if s.dir == root {
			m := listens.FindStringSubmatch(out.String())
			if m == nil {
				continue
			}
			addr = m[1]
		}

		if conn, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			conn.Close()
			s.addr, s.started = addr, time.Now()
			if m := tokens.FindStringSubmatch(out.String()); m != nil {
				s.token = m[1]
			}
			return
		}
	}

	s.t.Fatalf("%s: no server after %v\n%s", b, patience, out.String())
}

// patience is long enough to build a server.
const patience = 5 * time.Minute

// refill is the time in which the servers of the pages allow one more request.
const refill = 6 * time.Minute

// console runs the lines of a block that begin with $, and compares what they
// print. Dates and seconds of the clock may differ.
func (s *shell) console(b block) {
	s.t.Helper()
	var want, got strings.Builder
	for line := range strings.Lines(b.text) {
		want.WriteString(line)
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			got.WriteString(line)
			got.WriteString(s.run(b, command))
		}
	}

	if time.Since(s.started) > refill-time.Second {
		s.t.Logf("%s: the machine was too slow to compare: the limit has refilled", b)
		return
	}

	if got, want := timeless(got.String()), timeless(want.String()); got != want {
		s.t.Errorf("%s: got\n%s\nthe page has\n%s", b, got, want)
	}
}

var clock = regexp.MustCompile(`(?m)^(Date|Ratelimit-Reset|Retry-After): .*$`)

func timeless(text string) string {
	text = strings.ReplaceAll(text, "\r", "")
	return strings.TrimSpace(clock.ReplaceAllString(text, "$1: ..."))
}
