package faults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// childURL makes this test binary a child process of a test: the URL of the
// Redis that the children share.
const childURL = "RATELIMIT_FAULTS_CHILD"

// child takes from a number of keys with 8 callers for each line that it reads,
// "<milliseconds> <keys>", and writes how many calls passed and how many there
// were.
func child(url string, in io.Reader, out io.Writer) error {
	r, err := redisstore.Open(url, config{Prefix: "child:", Timeout: ample})
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.Ping(context.Background()); err != nil { // it settles the kind of the server
		return err
	}
	fmt.Fprintln(out, "ready")
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var ms, keys int
		if _, err := fmt.Sscan(lines.Text(), &ms, &keys); err != nil {
			return fmt.Errorf("a child does not understand %q: %w", lines.Text(), err)
		}
		var passed, asked, failed atomic.Int64
		end := time.Now().Add(time.Duration(ms) * time.Millisecond)
		redistest.Together(8, func(int) {
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

// processes starts n children on the Redis at a URL, and waits until they are ready.
func processes(t testing.TB, n int, url string) (all []*redistest.Process) {
	t.Helper()
	for range n {
		all = append(all, redistest.StartProcess(t, childURL, url))
	}
	for _, p := range all {
		p.Read()
	}
	return all
}

// askAll sends all processes a line at once, and returns the sums of their counts.
func askAll(t testing.TB, all []*redistest.Process, line string) (passed, asked int64) {
	t.Helper()
	for _, p := range all {
		p.Write(line)
	}
	for _, p := range all {
		var n, of int64
		if _, err := fmt.Sscan(p.Read(), &n, &of); err != nil {
			t.Fatal(err)
		}
		passed, asked = passed+n, asked+of
	}
	return passed, asked
}
