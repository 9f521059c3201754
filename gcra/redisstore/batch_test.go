package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// A batch is bounded, however many wait for it.
func TestBatchesAreBounded(t *testing.T) {
	client := redistest.Any(t)
	var most, longest atomic.Int64
	gate := make(chan struct{})
	seen := &observed{onCall: func(call int64, args []any) error {
		if call <= 2 {
			<-gate // until the others wait
		}
		bytes := 0
		keys := args[2].(int)
		for _, key := range args[3 : 3+keys] {
			bytes += len(key.(string))
		}
		most.Store(max(most.Load(), int64(keys)))
		longest.Store(max(longest.Load(), int64(bytes)))
		return nil
	}}
	client.AddHook(seen)
	r := newStore(client)
	r.Prefix += string(make([]byte, 200))
	var coming atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		redistest.Together(3000, func(i int) {
			coming.Add(1)
			if _, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: fmt.Sprint(i), Policy: "p", Limit: gcra.PerHour(20), Cost: 1}); err != nil {
				t.Error(err)
			}
		})
	}()
	redistest.Eventually(t, patience, "all callers come", func() bool { return coming.Load() == 3000 })
	close(gate)
	<-done
	if most.Load() < 50 || most.Load() > 512 || longest.Load() > 64<<10 {
		t.Errorf("the largest batch had %d keys, the longest %d bytes of them; want at most 512 keys and 65536 bytes, and not one by one", most.Load(), longest.Load())
	}
}

// An error reaches the callers of its batch and nobody else: all others are
// decided, and what was admitted is what is charged.
func TestErrorStaysInItsBatch(t *testing.T) {
	client := redistest.Any(t)
	broken := errors.New("broken on purpose")
	client.AddHook(&observed{onCall: func(call int64, _ []any) error {
		if call%3 == 0 {
			return broken
		}
		return nil
	}})
	r := newStore(client)
	var failed, admitted atomic.Int64
	c := gcra.Charge{Subject: "someone", Policy: "p", Limit: gcra.PerHour(100_000), Cost: 1}
	for range 10 {
		redistest.Together(50, func(int) {
			switch res, err := gcra.Take(context.Background(), r, c); {
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
		t.Errorf("%d failed and %d passed of 500; want some of each and no other", failed.Load(), admitted.Load())
	}
	c.Cost = 0
	for {
		res, err := gcra.Take(context.Background(), r, c)
		if errors.Is(err, broken) {
			continue
		}
		if spent := 100_000 - res.Remaining; err != nil || spent != admitted.Load() {
			t.Errorf("%d were admitted, %d are charged (%v)", admitted.Load(), spent, err)
		}
		return
	}
}

// Callers whose limits are all different are each decided by their own, however
// many ride together.
func TestManyLimitsInABatch(t *testing.T) {
	client := anyRedis(t)
	const callers = 400
	gate := make(chan struct{})
	client.AddHook(&observed{onCall: func(call int64, _ []any) error {
		if call <= 2 {
			<-gate // until the others wait
		}
		return nil
	}})
	r := newStore(client)
	var coming atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		redistest.Together(callers, func(i int) {
			coming.Add(1)
			limit := gcra.PerHour(int64(i) + 2)
			res, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: fmt.Sprint(i), Policy: "p", Limit: limit, Cost: 1})
			if err != nil || res.Remaining != limit.Count-1 {
				t.Errorf("limit %v: got %+v, %v; want %d remaining", limit, res, err, limit.Count-1)
			}
		})
	}()
	redistest.Eventually(t, patience, "all callers come", func() bool { return coming.Load() == callers })
	close(gate)
	<-done
	for i := range callers {
		limit := gcra.PerHour(int64(i) + 2)
		res, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: fmt.Sprint(i), Policy: "p", Limit: limit})
		if err != nil || res.Remaining != limit.Count-1 {
			t.Errorf("limit %v: afterwards %+v, %v; want %d remaining", limit, res, err, limit.Count-1)
		}
	}
}
