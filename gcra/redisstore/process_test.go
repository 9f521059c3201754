package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
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
const childURL = "REDISSTORE_TEST_CHILD_URL"

func TestMain(m *testing.M) {
	redistest.Child(childURL, child)
	redistest.Child(waitURL, waitingChild)
	redistest.Child(partnerURL, callingChild)
	redistest.Child(idleURL, idleChild)
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
			children := startProcesses(t, 4, childURL, tt.url(t))
			for round := range 5 {
				for _, p := range children {
					p.Write(fmt.Sprint("round ", round))
				}
				total := 0
				for _, p := range children {
					n, err := strconv.Atoi(p.Read())
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
				p.End()
			}
		})
	}
}

// startProcesses starts n processes and returns when each has written "ready".
func startProcesses(t *testing.T, n int, name, arg string) []*redistest.Process {
	t.Helper()
	processes := make([]*redistest.Process, n)
	for i := range processes {
		processes[i] = redistest.StartProcess(t, name, arg)
	}
	for _, p := range processes {
		if got := p.Read(); got != "ready" {
			t.Fatalf("a process writes %q; want ready", got)
		}
	}
	return processes
}
