package redisstore_test

import (
	"context"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// The local store goes on from what Redis has said.
func TestLocalIsWarm(t *testing.T) {
	client := redistest.Any(t)
	r := redisstore.New(client)
	r.Timeout = patience
	c := gcra.Charge{Subject: "someone", Policy: "p", Limit: gcra.PerHour(10), Cost: 1}
	for range 7 {
		if _, err := gcra.Take(context.Background(), r, c); err != nil {
			t.Fatal(err)
		}
	}
	c.Cost = 0
	res, err := gcra.Take(context.Background(), r.Local(), c)
	if err != nil || res.Remaining != 3 {
		t.Errorf("after 7 of 10 in Redis the local store has %+v, %v; want 3 remaining", res, err)
	}
}
