package redisstore_test

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/parallel"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

func TestMain(m *testing.M) {
	redistest.Child(idleURL, idleProcess)
	// Parallel tests have servers of their own, and as much time as they need. Those with narrow times, with goroutines
	// to count, or with the log of go-redis run alone.
	parallel.AtMost(8)
	logging.Disable()       // go-redis logs each dial that fails
	debug.SetGCPercent(400) // the embedded Redis makes a Lua state for each script, and little of the heap stays
	os.Exit(diagtest.Quiet(m).Run())
}
