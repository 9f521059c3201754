package turns_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/parallel"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

func TestMain(m *testing.M) {
	parallel.AtMost(8) // the last 2 ms of each turn pass in real time
	os.Exit(m.Run())
}

func newTurns(limit gcra.Limit) turns.Turns {
	return turns.Turns{
		Store:   gcra.NewMemory(),
		Charges: []gcra.Charge{{Subject: "partner", Policy: "p", Limit: limit, Cost: 1}},
	}
}

// Do calls when the turn comes, and returns the call's error.
func TestTurnsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		partner := newTurns(everySecond)
		begin := time.Now()
		var at []time.Duration
		for i := range 3 {
			fails := fmt.Errorf("call %d", i)
			if err := partner.Do(t.Context(), func(context.Context) error {
				at = append(at, time.Since(begin))
				return fails
			}); err != fails {
				t.Errorf("got %v; want the call's error", err)
			}
		}

		if got, want := fmt.Sprint(at), "[0s 1s 2s]"; got != want {
			t.Errorf("got calls at %s; want %s", got, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()

		if err := partner.Do(ctx, func(context.Context) error {
			t.Error("called without a turn")
			return nil
		}); !errors.Is(err, turns.ErrWouldWait) {
			t.Errorf("got %v; want ErrWouldWait", err)
		}
	})
}

// A negative MaxWait is an error that says what is right here.
func TestTurnsNegativeMaxWait(t *testing.T) {
	partner := newTurns(everySecond)
	partner.Charges[0].MaxWait = -1
	const want = `turns: policy "p": MaxWait is -1ns; want 0 (as long as the context allows) or more`
	for name, err := range map[string]error{"Wait": partner.Wait(t.Context()), "Try": partner.Try(t.Context())} {
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v; want %s", name, err, want)
		}
	}
}

// Try takes a turn that has come. Otherwise it returns at once, names the limit and the
// time to wait, and charges nothing.
func TestTurnsTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, err := gcra.ParseLimit("25/5s burst 1")
		if err != nil {
			t.Fatal(err)
		}

		partner := newTurns(limit)
		for range 3 {
			if err := partner.Try(t.Context()); err != nil {
				t.Fatal(err)
			}

			for range 2 {
				begin := time.Now()
				err := partner.Try(t.Context())
				var denied *turns.WaitError
				if !errors.As(err, &denied) || !errors.Is(err, turns.ErrWouldWait) || denied.RetryAfter() != 200*time.Millisecond {
					t.Fatalf("got %v; want a WaitError of 200ms", err)
				}

				const want = `turns: limit 25/5s burst 1, policy "p", subject "partner": would have to wait too long: needs 200ms, may take 0s`
				if err.Error() != want {
					t.Errorf("got error %s\nwant %s", err, want)
				}
				if took := time.Since(begin); took != 0 {
					t.Errorf("it took %v; want 0", took)
				}
			}
			time.Sleep(200 * time.Millisecond)
		}

		// Nor does it take the turn of a caller in the queue.
		if err := partner.Try(t.Context()); err != nil {
			t.Fatal(err)
		}

		waits := make(chan error)
		go func() { waits <- partner.Wait(t.Context()) }()
		synctest.Wait()
		if err := partner.Try(t.Context()); !errors.Is(err, turns.ErrWouldWait) {
			t.Errorf("got %v; want ErrWouldWait", err)
		}
		if err := <-waits; err != nil {
			t.Error(err)
		}
	})
}

// No wait is long enough for a cost above the burst, and RetryAfter is 0.
func TestTurnsNever(t *testing.T) {
	partner := newTurns(everySecond)
	partner.Charges[0].Cost = 2
	for name, err := range map[string]error{"Try": partner.Try(t.Context()), "Wait": partner.Wait(t.Context())} {
		var denied *turns.WaitError
		if !errors.As(err, &denied) || !denied.Never || denied.RetryAfter() != 0 {
			t.Errorf("%s: got %v; want a WaitError with Never", name, err)
		}
	}
}

// An error of the store is returned as it is.
func TestTurnsStoreFails(t *testing.T) {
	partner := newTurns(gcra.Limit{})
	for name, err := range map[string]error{"Try": partner.Try(t.Context()), "Wait": partner.Wait(t.Context())} {
		if err == nil || errors.Is(err, turns.ErrWouldWait) {
			t.Errorf("%s: got %v; want the store's error about the limit", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newTurns(everySecond).Try(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want context.Canceled", err)
	}
}

// A pacedStore waits for turns of its own before it answers.
type pacedStore struct {
	*gcra.Memory
	left  int // answers until its turn would come too late
	takes int
}

func (s *pacedStore) Take(ctx context.Context, charges []gcra.Charge) (bool, error) {
	s.takes++
	if s.left--; s.left < 0 {
		return false, &turns.WaitError{Policy: "of the store"}
	}
	return s.Memory.Take(ctx, charges)
}

// An error of the store ends a Wait at once, also if it is that of another Wait.
func TestWaitOnAStoreThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, left := range []int{0, 1, 2} { // in the first call, for the slot, and when it comes
			store := &pacedStore{Memory: gcra.NewMemory(), left: 1}
			partner := turns.Turns{Store: store, Charges: newTurns(everySecond).Charges}
			if err := partner.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}

			store.left, store.takes = left, 0
			err := partner.Wait(t.Context())
			var denied *turns.WaitError
			if !errors.As(err, &denied) || denied.Policy != "of the store" || store.takes != left+1 {
				t.Errorf("after %d answers: got %v with %d calls; want the store's error with %d", left, err, store.takes, left+1)
			}
		}
	})
}

// 60 callers share one call a second and ask again as soon as they have been served. With patience for a
// turn of each, all are served equally.
func TestTurnsPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const callers, minutes = 60, 4
		partner := newTurns(everySecond)
		partner.Charges[0].MaxWait = (callers + 1) * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), minutes*time.Minute)
		defer cancel()
		calls := make([]int, callers)

		// All ask before the second turn, so that each has its place.
		if err := partner.Try(ctx); err != nil {
			t.Fatal(err)
		}

		var running sync.WaitGroup
		for i := range calls {
			running.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond) // one after the other
				for ctx.Err() == nil {
					if err := partner.Wait(context.WithoutCancel(ctx)); err != nil {
						t.Error(err)
						return
					}
					calls[i]++
				}
			})
		}

		running.Wait()
		slices.Sort(calls)
		if calls[callers-1]-calls[0] > 1 {
			t.Errorf("got calls %v; want all to be served equally", calls)
		}
	})
}

// A charge without a Cost takes one unit.
func TestTurnsWithoutCost(t *testing.T) {
	partner := newTurns(everySecond)
	partner.Charges[0].Cost = 0
	if err := partner.Try(t.Context()); err != nil {
		t.Errorf("the first turn: got %v", err)
	}
	if err := partner.Try(t.Context()); !errors.Is(err, turns.ErrWouldWait) {
		t.Errorf("the second turn: got %v; want ErrWouldWait", err)
	}
}

// A quota has no queue.
func TestWaitForAQuota(t *testing.T) {
	m := gcra.NewMemory()
	quota := gcra.Charge{Policy: "p", Limit: gcra.Quota(5, gcra.Daily), Cost: 1}
	if err := turns.Wait(t.Context(), m, quota); err == nil || errors.Is(err, turns.ErrWouldWait) || !strings.Contains(err.Error(), "5/calendar day, a quota") {
		t.Errorf("got %v; want an error about the quota", err)
	}
	if err := (turns.Turns{Store: m, Charges: []gcra.Charge{quota}}).Try(t.Context()); err == nil || !strings.Contains(err.Error(), "5/calendar day, a quota") {
		t.Errorf("Try: got %v; want an error about the quota", err)
	}
	if r, err := gcra.Peek(t.Context(), m, gcra.Charge{Subject: "", Policy: "p", Limit: quota.Limit}); err != nil || r.Remaining != 5 {
		t.Errorf("got %+v, %v; want nothing taken", r, err)
	}
}
