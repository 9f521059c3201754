package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// childURL makes this test binary one of the processes of a test: it is the
// Redis that they share.
const childURL = "GCRA_TEST_CHILD_URL"

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		if err := child(url, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if url := os.Getenv(waitURL); url != "" {
		if err := waitingChild(url, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if urls := os.Getenv(partnerURL); urls != "" {
		if err := callingChild(urls, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if url := os.Getenv(idleURL); url != "" {
		if err := idleChild(url, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(diagtest.Quiet(m).Run())
}

const callers = 100 // goroutines of a child

// child takes from the subject on each line that it reads, with all its callers
// at once, and writes how many passed.
func child(url string, in io.Reader, out io.Writer) error {
	r, err := redisstore.Open(url)
	if err != nil {
		return err
	}
	defer r.Close()
	r.Timeout = patience
	fmt.Fprintln(out, "ready")
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var passed, failed atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				result, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: lines.Text(), Policy: "p", Limit: gcra.PerHour(20), Cost: 1})
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					failed.Add(1)
				} else if result.Allowed {
					passed.Add(1)
				}
			})
		}
		wg.Wait()
		if failed.Load() > 0 {
			return fmt.Errorf("%d calls failed", failed.Load())
		}
		fmt.Fprintln(out, passed.Load())
	}
	return nil
}

// Four processes of a hundred callers each find a fresh bucket of 20: exactly
// 20 pass in all.
func TestProcesses(t *testing.T) {
	for _, tt := range []struct {
		name string
		url  func(t *testing.T) string
	}{
		{"one Redis", func(t *testing.T) string { return redistest.Start(t).URL() + "?read_timeout=20s" }},
		{"cluster", func(t *testing.T) string {
			return "redis://" + strings.Join(redistest.StartCluster(t).Addrs(), ",") + "?read_timeout=20s"
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url := tt.url(t)
			var children [4]*process
			for i := range children {
				children[i] = startProcess(t, childURL+"="+url)
			}
			for _, p := range children {
				if got := p.read(t); got != "ready" {
					t.Fatalf("a child says %q; want ready", got)
				}
			}
			for round := range 5 {
				for _, p := range children {
					p.write(t, fmt.Sprint("round ", round))
				}
				total := 0
				for _, p := range children {
					n, err := strconv.Atoi(p.read(t))
					if err != nil {
						t.Fatal(err)
					}
					total += n
				}
				if total != 20 {
					t.Errorf("round %d: %d of %d passed; want 20", round, total, callers*len(children))
				}
			}
			for _, p := range children {
				p.end(t)
			}
		})
	}
}

// process is this test binary, run again.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startProcess(t *testing.T, env ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.CommandContext(t.Context(), exe)}
	p.cmd.Env = append(os.Environ(), env...)
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
	return p
}

func (p *process) write(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		t.Fatal(err)
	}
}

func (p *process) read(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("reading from a child: %v", err)
	}
	return strings.TrimSpace(line)
}

func (p *process) end(t *testing.T) {
	t.Helper()
	if err := p.in.Close(); err != nil {
		t.Error(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("a child: %v", err)
	}
}
