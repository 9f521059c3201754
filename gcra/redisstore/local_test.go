package redisstore_test

import (
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// The local store starts from the last known state of each key.
func TestLocalStartsFromRedis(t *testing.T) {
	r := redisstore.New(redistest.Any(t))
	r.Timeout = patience
	for range 7 {
		gcratest.MustTake(t, r, hourly("s", 10))
	}
	peek, err := gcra.Peek(t.Context(), r.Local(1), "s", "p", hourly("s", 10).Limit)
	if err != nil || peek.Remaining != 3 {
		t.Errorf("after 7 of 10 in Redis: got %+v, %v in the local store; want 3 remaining", peek, err)
	}
}
