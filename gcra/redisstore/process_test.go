package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/parallel"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// processURL makes this test binary a process of TestProcesses, on the Redis of this URL.
const processURL = "REDISSTORE_TEST_PROCESS_URL"

func TestMain(m *testing.M) {
	redistest.Child(processURL, process)
	redistest.Child(partnerURL, callingProcess)
	redistest.Child(idleURL, idleProcess)
	redistest.Child(serviceProcessURL, serviceProcess)
	// Parallel tests have servers of their own, and as much time as they need. Those with narrow times, with goroutines
	// to count, or with the log of go-redis run alone.
	parallel.AtMost(8)
	logging.Disable()       // go-redis logs each dial that fails
	debug.SetGCPercent(400) // the embedded Redis makes a Lua state for each script, and little of the heap stays
	os.Exit(diagtest.Quiet(m).Run())
}

const callers = 100 // goroutines of a process

// process takes from the subject on each line that it reads, with all its callers
// at once, and writes how many were allowed. A line that begins with quota is about a quota
// of 20 together with a rate that allows more.
func process(url string, in io.Reader, out io.Writer) error {
	r, err := redisstore.Open(url, config{Timeout: patience})
	if err != nil {
		return err
	}
	defer r.Close()
	fmt.Fprintln(out, "ready")

	for lines := bufio.NewScanner(in); lines.Scan(); {
		var allowed, failed atomic.Int64
		redistest.Together(callers, func(int) {
			charges := []gcra.Charge{hourly(lines.Text(), 20)}
			if strings.HasPrefix(lines.Text(), "quota") {
				charges = []gcra.Charge{
					{Subject: lines.Text(), Policy: "p", Limit: gcra.Quota(20, gcra.Yearly), Cost: 1},
					{Subject: lines.Text(), Policy: "p", Limit: gcra.PerSecond(1000), Cost: 1},
				}
			}

			ok, err := r.Take(context.Background(), charges)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				failed.Add(1)
			} else if ok {
				allowed.Add(1)
			}
		})

		if failed.Load() > 0 {
			return fmt.Errorf("%d calls failed", failed.Load())
		}
		fmt.Fprintln(out, allowed.Load())
	}

	return nil
}

// Four processes of 100 callers take from a full bucket of 20, or from a quota of 20 and a
// rate of 1,000 a second: exactly 20 are allowed.
func TestProcesses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		url  func(t *testing.T) string
	}{
		{"one Redis", func(t *testing.T) string { return redistest.Start(t).URL() }},
		{"cluster", func(t *testing.T) string {
			return "redis://" + strings.Join(redistest.StartCluster(t).Addrs(), ",")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			processes := startProcesses(t, 4, processURL, tt.url(t))
			for round := range 10 {
				what := []string{"rate", "quota"}[round%2]
				for _, p := range processes {
					p.Write(fmt.Sprint(what, " round ", round))
				}

				total := 0
				for _, p := range processes {
					n, err := strconv.Atoi(p.Read())
					if err != nil {
						t.Fatal(err)
					}
					total += n
				}

				if total != 20 {
					t.Errorf("%s, round %d: %d of %d allowed; want 20", what, round, total, callers*len(processes))
				}
			}

			for _, p := range processes {
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
