package turns_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// A farStore is a Memory whose answers take a round trip.
type farStore struct {
	gcra.Memory
	roundTrip atomic.Int64 // nanoseconds
}

func (s *farStore) travel(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(s.roundTrip.Load()) / 2):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *farStore) Take(ctx context.Context, charges []gcra.Charge) (allowed bool, err error) {
	if err := s.travel(ctx); err != nil {
		return false, err
	}
	if allowed, err = s.Memory.Take(ctx, charges); err != nil {
		return false, err
	}
	return allowed, s.travel(ctx)
}

func (s *farStore) Refund(ctx context.Context, charges []gcra.Charge) error {
	return errors.Join(s.travel(ctx), s.Memory.Refund(ctx, charges), s.travel(ctx))
}

// A slot within a round trip of the deadline is denied at once and charges nothing: no
// caller sleeps for a slot and is then too late.
func TestWaitNoSlotLostAtDeadline(t *testing.T) {
	const roundTrip = 50 * time.Millisecond
	for _, slower := range []time.Duration{0, 20 * time.Millisecond} { // the second call than the first
		granted, denials := 0, 0
		for patience := 150 * time.Millisecond; patience < 1350*time.Millisecond; patience += 6 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				store := new(farStore)
				store.roundTrip.Store(int64(roundTrip))
				c := gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond, Cost: 1}
				if err := turns.Wait(t.Context(), store, c); err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(roundTrip*3/2, func() { store.roundTrip.Add(int64(slower)) })
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				err := turns.Wait(ctx, store, c)
				if err == nil {
					granted++
					return
				}
				denials++
				if took := time.Since(begin); !errors.Is(err, turns.ErrWouldWait) || took > 4*roundTrip {
					t.Errorf("patience %v: got %v after %v; want ErrWouldWait at once", patience, err, took)
				}
				peek := c
				peek.Cost, peek.MaxDelay = 0, time.Hour
				r, err := gcra.Take(t.Context(), &store.Memory, peek)
				if want := time.Second - roundTrip/2 - time.Since(begin); err != nil || r.ResetAfter != want {
					t.Errorf("patience %v: afterwards the queue is %v long (%v); want %v", patience, r.ResetAfter, err, want)
				}
			})
		}
		t.Logf("%d turns, %d denials", granted, denials)
		if granted == 0 || denials == 0 {
			t.Errorf("got %d turns and %d denials; want some of both", granted, denials)
		}
	}
}

// If the store takes longer for one caller, the next does not lose a slot at the end of its MaxWait.
func TestWaitBehindALateCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 10 * time.Millisecond
		store := new(farStore)
		begin := time.Now()
		var waits sync.WaitGroup
		for i := range 3 {
			waits.Go(func() {
				c := gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond, Cost: 1, MaxWait: 2 * time.Second}
				err := turns.Wait(t.Context(), store, c)
				if took := time.Since(begin); err != nil || took > time.Duration(i)*time.Second+late {
					t.Errorf("caller %d: got %v after %v; want nil after %ds", i, err, took, i)
				}
			})
			synctest.Wait() // the next comes after it
		}
		time.Sleep(time.Second - 1)
		store.roundTrip.Store(int64(late))
		time.Sleep(time.Second / 2)
		store.roundTrip.Store(0)
		waits.Wait()
	})
}
