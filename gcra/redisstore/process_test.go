package redisstore_test

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/parallel"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

func TestMain(m *testing.M) {
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

// Four processes share one Redis, or a cluster.
func TestProcesses(t *testing.T) {
	t.Parallel()
	exactlyTwentyOfProcesses(t, redistest.Start(t).URL())
	exactlyTwentyOfProcesses(t, "redis://"+strings.Join(redistest.StartCluster(t).Addrs(), ","))
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
