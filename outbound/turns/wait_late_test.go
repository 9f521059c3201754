package turns_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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
	*gcra.Memory
	roundTrip atomic.Int64 // nanoseconds
	refunds   int
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
	s.refunds++
	return errors.Join(s.travel(ctx), s.Memory.Refund(ctx, charges), s.travel(ctx))
}

// A slot within a round trip of the deadline is denied at once and charges nothing: no
// caller sleeps for a slot and is then too late. Only a slot that was reserved in a longer round trip is
// given back. Other turns begin when their slot does.
func TestWaitNoSlotLostAtDeadline(t *testing.T) {
	const roundTrip = 50 * time.Millisecond
	for _, slower := range []time.Duration{0, 20 * time.Millisecond} { // the second call than the first
		granted, refunds, denials := 0, 0, 0
		for patience := 168 * time.Millisecond; patience < 1350*time.Millisecond; patience += 6 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				store := &farStore{Memory: gcra.NewMemory()}
				store.roundTrip.Store(int64(roundTrip))
				c := gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond, Cost: 1}
				if err := turns.Wait(t.Context(), store, c); err != nil {
					t.Fatal(err)
				}

				time.AfterFunc(roundTrip*5/4, func() { store.roundTrip.Add(int64(slower)) }) // the answer to the second call
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				err := turns.Wait(ctx, store, c)
				took := time.Since(begin)
				refunds += store.refunds

				missing := time.Second + roundTrip - patience*9/10
				if missing+slower <= 0 {
					granted++
					if err != nil || took != time.Second+slower || store.refunds > 0 {
						t.Errorf("patience %v: got %v after %v, %d refunds; want a turn after 1s", patience, err, took, store.refunds)
					}
					return
				}

				denials++
				if store.refunds > 0 {
					missing += slower
				}
				var denied *turns.WaitError
				if !errors.As(err, &denied) || denied.RetryAfter() != missing || took > 4*roundTrip {
					t.Errorf("patience %v: got %v after %v; want a WaitError at once, to retry after %v", patience, err, took, missing)
				}

				peek := c
				peek.Cost, peek.MaxDelay = 0, time.Hour
				r, err := gcra.Take(t.Context(), store.Memory, peek)
				if want := time.Second - roundTrip/2 - time.Since(begin); err != nil || r.ResetAfter != want {
					t.Errorf("patience %v: afterwards the queue is %v long (%v); want %v", patience, r.ResetAfter, err, want)
				}
			})
		}

		if granted == 0 || denials == 0 || refunds > 0 != (slower > 0) {
			t.Errorf("%v slower: got %d turns, %d refunds and %d denials; want some of each", slower, granted, refunds, denials)
		}
	}
}

// A slot that is reserved as late as its time is a turn, although a round trip has taken longer than the caller wants to wait.
func TestWaitForASlotThatHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &farStore{Memory: gcra.NewMemory()}
		c := gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond, Cost: 1, MaxWait: time.Millisecond}
		if err := turns.Wait(t.Context(), store, c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second - time.Millisecond)
		store.roundTrip.Store(int64(time.Millisecond))
		if err := turns.Wait(t.Context(), store, c); err != nil || store.refunds > 0 {
			t.Errorf("got %v and %d refunds; want a turn", err, store.refunds)
		}
	})
}

// A caller whose slot was reserved in a long round trip does not ask so early for its turn that it loses the slot.
func TestWaitStoreAnswersFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := &farStore{Memory: gcra.NewMemory()}
		far := &farStore{Memory: near.Memory}
		far.roundTrip.Store(int64(1600 * time.Millisecond))
		time.AfterFunc(4*time.Second, func() { far.roundTrip.Store(0) })
		begin := time.Now()
		c := gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond, Cost: 1}
		var waits sync.WaitGroup
		for range 6 {
			waits.Go(func() { _ = turns.Wait(t.Context(), near, c) })
		}

		// The slot is at 6 s. The caller has learned it after half a round trip, for all it knows.
		err := turns.Wait(t.Context(), far, c)
		if took := time.Since(begin); err != nil || took != 6800*time.Millisecond {
			t.Errorf("got %v after %v; want a turn after 6.8s", err, took)
		}
		waits.Wait()
	})
}

// If the store takes longer for one caller, the next does not lose a slot at the end of its patience, be it
// MaxWait, of seconds or of centuries, or the deadline of its context.
func TestWaitBehindALateCaller(t *testing.T) {
	for _, maxWait := range []time.Duration{2 * time.Second, math.MaxInt64, 0} {
		synctest.Test(t, func(t *testing.T) {
			const late = 10 * time.Millisecond
			store := &farStore{Memory: gcra.NewMemory()}
			begin := time.Now()
			var waits sync.WaitGroup
			for i := range 3 {
				waits.Go(func() {
					ctx := t.Context()
					c := gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond, Cost: 1, MaxWait: maxWait}
					if maxWait == 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, 2300*time.Millisecond)
						defer cancel()
					}

					err := turns.Wait(ctx, store, c)
					if took := time.Since(begin); err != nil || took > time.Duration(i)*time.Second+late {
						t.Errorf("MaxWait %v, caller %d: got %v after %v; want nil after %ds", maxWait, i, err, took, i)
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
}

// A hungStore hangs from 15.01 s to 20.01 s. It then runs the charges of callers that have given up after two
// seconds, before those that still wait.
type hungStore struct {
	*gcra.Memory
	begin time.Time
}

func (s *hungStore) Take(ctx context.Context, charges []gcra.Charge) (allowed bool, err error) {
	const from, to, patience = 15010 * time.Millisecond, 20010 * time.Millisecond, 2 * time.Second
	at := time.Since(s.begin)
	switch {
	case at < from || at >= to:
	case to-at < patience:
		time.Sleep(to - at + time.Microsecond)
	default:
		time.AfterFunc(to-at, func() { _, _ = s.Memory.Take(context.WithoutCancel(ctx), slices.Clone(charges)) })
		time.Sleep(patience)
		return false, errors.New("no answer")
	}
	return s.Memory.Take(ctx, charges)
}

// A store that hangs for five seconds costs the turns of these, although it then charges callers that have given up.
func TestWaitTurnsLostToAHang(t *testing.T) {
	t.Parallel()
	for _, c := range []gcra.Limit{everySecond, {Count: 1, Per: 500 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			const length = 40*time.Second + 200*time.Millisecond
			store := &hungStore{Memory: gcra.NewMemory(), begin: time.Now()}
			ctx, cancel := context.WithTimeout(t.Context(), length)
			defer cancel()

			var got atomic.Int64
			var callers sync.WaitGroup
			for range 60 {
				callers.Go(func() {
					for ctx.Err() == nil {
						if turns.Wait(ctx, store, gcra.Charge{Subject: "partner", Policy: "p", Limit: c, Cost: 1}) == nil {
							got.Add(1)
						} else {
							time.Sleep(50 * time.Millisecond)
						}
					}
				})
			}
			callers.Wait()

			if all := int64(length/c.Interval()) + 1; got.Load() < all-int64(5*time.Second/c.Interval()) {
				t.Errorf("%v: got %d of %d turns; want all but those of five seconds", c, got.Load(), all)
			}
		})
	}
}

// A caller whose context ends in the queue learns which limit it waited for, and until when.
func TestWaitErrorOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := gcra.NewMemory()
		c := gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond, Cost: 1}
		if err := turns.Wait(t.Context(), m, c); err != nil {
			t.Fatal(err)
		}
		turn := time.Now().Add(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second/2, cancel)
		err := turns.Wait(ctx, m, c)
		want := fmt.Sprintf("turns: limit 1/second, policy \"p\", subject \"partner\": the turn is at %s: context canceled", turn.Format(time.RFC3339Nano))
		if !errors.Is(err, context.Canceled) || err.Error() != want {
			t.Errorf("got %v; want %s", err, want)
		}
	})
}
