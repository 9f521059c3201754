package redistest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Child makes the test binary a process of a test. If [StartProcess] has
// started it by this name, Child runs f and exits; otherwise it does nothing.
// Call it first in TestMain.
func Child(name string, f func(arg string, in io.Reader, out io.Writer) error) {
	arg := os.Getenv(name)
	if arg == "" {
		return
	}
	if err := f(arg, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Process is the test binary, run again.
type Process struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// StartProcess runs the test binary again, in which [Child] with this name, that
// of an environment variable, takes over. The test fails if the process does.
func StartProcess(t testing.TB, name, arg string) *Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	p := &Process{t: t, cmd: exec.Command(exe)}
	p.cmd.Env = append(os.Environ(), name+"="+arg, "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}

	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.End)
	return p
}

// Write sends the process a line.
func (p *Process) Write(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatalf("writing to a process: %v", err)
	}
}

// Read returns the next line that the process writes.
func (p *Process) Read() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("reading from a process: %q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

// CloseInput tells the process to end; what it still writes can be read.
func (p *Process) CloseInput() { _ = p.in.Close() }

// Kill ends the process as kill -9 does, and returns when it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only for a process that has ended
	_ = p.cmd.Wait()
}

// End closes the input of the process and waits for its end. The cleanup of the
// test does it too.
func (p *Process) End() {
	p.t.Helper()
	p.CloseInput()
	if p.cmd.ProcessState != nil {
		return
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("a process: %v", err)
	}
}
