// Package redistest runs real redis-server processes for tests: standalone, as
// a Sentinel group and as a six-node cluster, with a fault-injecting TCP proxy
// to put in front of them.
//
// Everything listens on free loopback ports, is ready when its constructor returns,
// and ends with the test: each constructor registers a t.Cleanup. On Linux the processes die with the test binary, even one that is
// killed. A server has a goroutine that waits for its process, and a client has
// its own, until that cleanup; a leak check must therefore run after it, by
// being registered with t.Cleanup before the server is started.
//
// The server is the redis-server on the PATH, or the redis-server or
// valkey-server that RATELIMIT_TEST_SERVER names. Where there is none on the
// PATH, the Start functions skip the test, or fail it when the environment says
// RATELIMIT_TEST_REDIS=required, so that a CI run cannot pass by skipping. A
// RATELIMIT_TEST_SERVER that does not work always fails it. [Any] and
// [StartEmbedded] need no server.
package redistest

import (
	"errors"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// available reports whether there is a server to start.
func available() bool {
	_, err := theProgram()
	return err == nil
}

// required reports whether a missing server is a failure.
func required() bool { return os.Getenv(envVar) == "required" || os.Getenv(programVar) != "" }

// Need skips or fails the test if there is no server, as the Start functions do.
// Call it where these get the testing.TB of another test.
func Need(t testing.TB) {
	t.Helper()
	_, err := theProgram()
	switch {
	case err == nil:
	case os.Getenv(programVar) != "":
		t.Fatalf("%v", err)
	case required():
		t.Fatalf("%v, and %s=required", err, envVar)
	default:
		t.Skipf("%v; set %s=required to make this a failure", err, envVar)
	}
}

// Any returns a client of an empty Redis: of a real server where one is
// installed, otherwise of an embedded one (see [StartEmbedded]). With
// RATELIMIT_TEST_REDIS=required or RATELIMIT_TEST_SERVER it is always a real one.
func Any(t testing.TB) *redis.Client {
	t.Helper()
	if available() || required() {
		return Start(t).Client()
	}
	return StartEmbedded(t)
}

// AnyStill is [Any], but the clock of an embedded Redis stands still at a millisecond.
// [ExpireTime] is exact there: a TTL stays as it was set, in whole milliseconds.
func AnyStill(t testing.TB) *redis.Client {
	t.Helper()
	if available() || required() {
		return Start(t).Client()
	}
	return startEmbedded(t, time.Now().Truncate(time.Millisecond))
}

// StartEmbedded returns a client of an empty miniredis, a Redis written in Go
// that runs in the process of the test. Use it for the contract of stores, not for
// precision or faults: its Lua prints numbers exactly where a real server rounds
// them, and a key's TTL does not decrease with time. The test is skipped where an
// int has 32 bits.
func StartEmbedded(t testing.TB) *redis.Client {
	t.Helper()
	return startEmbedded(t, time.Time{})
}

// startEmbedded starts a miniredis whose clock stands still, or with a zero time goes on.
func startEmbedded(t testing.TB, still time.Time) *redis.Client {
	t.Helper()
	if strconv.IntSize < 64 {
		t.Skip("miniredis takes numbers of scripts for ints, which have 32 bits here")
	}
	server := miniredis.RunT(t)
	server.SetTime(still)
	c := redis.NewClient(&redis.Options{
		Addr:                     server.Addr(),
		MaintNotificationsConfig: noMaintenance(),
	})
	closeAtCleanup(t, c)
	return c
}

// Eventually calls cond every few milliseconds until it is true, and fails the test
// if it is not within the given time. what completes the sentence "timed out waiting
// for ...".
func Eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	err := poll(within, func() error {
		if cond() {
			return nil
		}
		return errors.New("not yet")
	})
	if err != nil {
		t.Fatalf("timed out after %v waiting for %s", within, what)
	}
}

// poll calls f until it returns nil, at least once. After the given time it returns
// the last error.
func poll(within time.Duration, f func() error) error {
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// noMaintenance switches off a handshake that only managed services answer.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// closeAtCleanup closes a client when the test ends; a test may have done so already.
func closeAtCleanup(t testing.TB, c redis.UniversalClient) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Errorf("closing a client: %v", err)
		}
	})
}

// Together calls f from n goroutines at once, and returns when all are done.
func Together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}
