package faults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// childURL makes this test binary one of the processes of a row: it is the
// Redis that they share.
const childURL = "RATELIMIT_FAULTS_CHILD"

// child takes from a number of keys with 8 callers for each line that it reads,
// "<milliseconds> <keys>", and writes how many calls passed and how many there
// were.
func child(url string, in io.Reader, out io.Writer) error {
	r, err := gcra.Open(url)
	if err != nil {
		return err
	}
	defer r.Close()
	r.Prefix, r.Timeout = "child:", ample
	fmt.Fprintln(out, 0, 0)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var ms, keys int
		if _, err := fmt.Sscan(lines.Text(), &ms, &keys); err != nil {
			return fmt.Errorf("a child does not understand %q: %w", lines.Text(), err)
		}
		var passed, asked, failed atomic.Int64
		end := time.Now().Add(time.Duration(ms) * time.Millisecond)
		crowd(8, func(int) {
			for time.Now().Before(end) {
				asked.Add(1)
				c := gcra.Charge{Subject: fmt.Sprint("key", rand.IntN(keys)), Policy: "load", Limit: loadLimit, Cost: 1}
				if res, err := gcra.Take(context.Background(), r, c); err != nil {
					fmt.Fprintln(os.Stderr, err)
					failed.Add(1)
				} else if res.Allowed {
					passed.Add(1)
				}
			}
		})
		if failed.Load() > 0 {
			return fmt.Errorf("%d calls failed", failed.Load())
		}
		fmt.Fprintln(out, passed.Load(), asked.Load())
	}
	return nil
}

// process is this test binary, run again.
type process struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func startProcess(t testing.TB, url string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childURL+"="+url, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	p := new(process)
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.in.Close() // which ends it
		if err := cmd.Wait(); err != nil {
			t.Errorf("a child: %v", err)
		}
	})
	p.read(t)
	return p
}

// read returns the two numbers of a child's line.
func (p *process) read(t testing.TB) (n [2]int64) {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(line, &n[0], &n[1])
	}
	if err != nil {
		t.Fatalf("reading from a child: %q, %v", line, err)
	}
	return n
}

// askAll has all processes do something at once, and returns what each says.
func askAll(t testing.TB, all []*process, line string) [][2]int64 {
	t.Helper()
	for _, p := range all {
		if _, err := fmt.Fprintln(p.in, line); err != nil {
			t.Fatal(err)
		}
	}
	said := make([][2]int64, len(all))
	for i, p := range all {
		said[i] = p.read(t)
	}
	return said
}
