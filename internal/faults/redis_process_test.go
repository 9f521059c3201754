package faults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
)

// childURL makes this test binary one of the processes of a row: it is the
// Redis that they share.
const childURL = "RATELIMIT_FAULTS_CHILD"

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		if err := child(url, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child does what it reads, line by line, and writes how many calls passed and
// how many there were:
//
//	burst <subject> <n>   64 callers at once take from a bucket of n
//	load <ms> <keys>      8 callers take from keys for a while
func child(url string, in io.Reader, out io.Writer) error {
	r, err := redisstore.Open(url)
	if err != nil {
		return err
	}
	defer r.Close()
	r.Prefix, r.Timeout = "child:", ample
	fmt.Fprintln(out, 0, 0)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var passed, asked, failed atomic.Int64
		take := func(c gcra.Charge) {
			asked.Add(1)
			if res, err := gcra.Take(context.Background(), r, c); err != nil {
				fmt.Fprintln(os.Stderr, err)
				failed.Add(1)
			} else if res.Allowed {
				passed.Add(1)
			}
		}
		word := strings.Fields(lines.Text())
		var n, keys int
		switch {
		case len(word) == 3 && word[0] == "burst" && scan(word[2], &n):
			crowd(64, func(int) { take(daily(word[1], int64(n))) })
		case len(word) == 3 && word[0] == "load" && scan(word[1], &n) && scan(word[2], &keys):
			end := time.Now().Add(time.Duration(n) * time.Millisecond)
			crowd(8, func(int) {
				for time.Now().Before(end) {
					take(gcra.Charge{Subject: fmt.Sprint("key", rand.IntN(keys)), Policy: "load", Limit: loadLimit, Cost: 1})
				}
			})
		default:
			return fmt.Errorf("a child does not understand %q", lines.Text())
		}
		if failed.Load() > 0 {
			return fmt.Errorf("%d calls failed", failed.Load())
		}
		fmt.Fprintln(out, passed.Load(), asked.Load())
	}
	return nil
}

func scan(s string, n *int) bool {
	_, err := fmt.Sscan(s, n)
	return err == nil
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
