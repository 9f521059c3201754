package redisstore_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// inBatches calls f from n goroutines at once, and holds the calls of the script back until all goroutines have
// begun, so that the next batches are large.
func inBatches(t *testing.T, client *redis.Client, n int, onCall func(args []any), f func(i int)) {
	t.Helper()

	all := make(chan struct{})
	client.AddHook(scriptHook(func(cmd redis.Cmder) error {
		<-all
		onCall(cmd.Args())
		return nil
	}))
	together(n, all, f)
}

// together calls f from n goroutines at once, and closes all when each has begun.
func together(n int, all chan struct{}, f func(i int)) {
	var begun atomic.Int64
	redistest.Together(n, func(i int) {
		if begun.Add(1) == int64(n) {
			close(all)
		}
		f(i)
	})
}

// A batch is bounded, however many requests wait, and each is decided by its own limit.
func TestBatchesAreBounded(t *testing.T) {
	client := redistest.Any(t)
	r := newStore(t, client, config{Prefix: newPrefix() + string(make([]byte, 200))})
	settled(t, r)

	var most, longest atomic.Int64
	inBatches(t, client, 3000, func(args []any) {
		bytes := 0
		keys := args[2].(int)
		for _, key := range args[3 : 3+keys] {
			bytes += len(*key.(*string))
		}
		most.Store(max(most.Load(), int64(keys)))
		longest.Store(max(longest.Load(), int64(bytes)))
	}, func(i int) {
		n := int64(i%5) + 2
		if res, err := gcra.Take(t.Context(), r, hourly(fmt.Sprint(i), n)); err != nil || res.Remaining != n-1 {
			t.Errorf("limit of %d: got %+v, %v; want %d remaining", n, res, err, n-1)
		}
	})

	if most.Load() < 50 || most.Load() > 256 || longest.Load() > 64<<10 {
		t.Errorf("got batches of up to %d keys and up to %d bytes of keys; want 50 to 256 keys and at most 65536 bytes", most.Load(), longest.Load())
	}
}

// An error is returned to the callers of its batch only. All others are decided, and
// what was admitted is charged.
func TestErrorStaysInItsBatch(t *testing.T) {
	client := redistest.Any(t)
	r := settled(t, newStore(t, client, config{})) // scripts of a test would break, too

	broken := errors.New("broken on purpose")
	var calls, failed, admitted atomic.Int64
	client.AddHook(scriptHook(func(redis.Cmder) error {
		if calls.Add(1)%3 == 0 {
			return broken
		}
		return nil
	}))

	const limit = 1000
	for range 10 {
		redistest.Together(50, func(int) {
			switch res, err := gcra.Take(t.Context(), r, hourly("s", limit)); {
			case errors.Is(err, broken):
				failed.Add(1)
			case err != nil:
				t.Error(err)
			case res.Allowed:
				admitted.Add(1)
			}
		})
	}

	if failed.Load() == 0 || failed.Load()+admitted.Load() != 500 {
		t.Errorf("of 500 calls %d failed and %d were admitted; want some failed and all others admitted", failed.Load(), admitted.Load())
	}
	sees := newStore(t, patientClient(t, client.Options().Addr), config{Prefix: r.Prefix()})
	if got := spent(t, sees, "s", limit); got != admitted.Load() {
		t.Errorf("%d calls were admitted, and %d are charged; want as many", admitted.Load(), got)
	}
}
