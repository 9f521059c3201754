package turns_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

var everySecond = gcra.Limit{Count: 1, Per: time.Second}

// Callers go in the order of their calls, one in each interval of the limit.
func TestWaitTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := gcra.NewMemory()
		begin := time.Now()

		var mu sync.Mutex
		var order []int
		for i := range 5 {
			go func() {
				if err := turns.Wait(t.Context(), m, gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond, Cost: 1}); err != nil {
					t.Error(err)
				}

				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				if got, want := time.Since(begin), time.Duration(i)*time.Second; got != want {
					t.Errorf("caller %d waited %v; want %v", i, got, want)
				}
			}()
			synctest.Wait() // until this caller is in the queue
		}

		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []int{0, 1, 2, 3, 4}; !slices.Equal(order, want) {
			t.Errorf("got order %v; want %v", order, want)
		}
	})
}

// The limit with the longer queue decides, and the other is charged too.
func TestWaitForTwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := gcra.NewMemory()
		charges := []gcra.Charge{
			{Subject: "partner", Policy: "fast", Limit: gcra.Limit{Count: 25, Per: 5 * time.Second}, Cost: 1},
			{Subject: "partner", Policy: "slow", Limit: gcra.PerMinute(300).WithBurst(30), Cost: 1},
		}

		begin := time.Now()
		for range 40 {
			if err := turns.Wait(t.Context(), m, charges...); err != nil {
				t.Fatal(err)
			}
		}

		// 25 at once, then one in 200 ms. The slow limit alone allows 30 at once.
		if got, want := time.Since(begin), 15*200*time.Millisecond; got != want {
			t.Errorf("40 calls took %v; want %v", got, want)
		}
	})
}

// The charge that is denied for longest decides when to retry, although another has to wait longer.
func TestRetryAfterOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := gcra.NewMemory()
		patient := gcra.Charge{Subject: "partner", Policy: "patient", Limit: everySecond, MaxDelay: time.Hour, MaxWait: time.Hour}
		for range 11 {
			if _, err := gcra.Take(t.Context(), m, patient); err != nil {
				t.Fatal(err)
			}
		}
		patient.MaxWait = 10 * time.Second
		hasty := gcra.Charge{Subject: "partner", Policy: "hasty", Limit: gcra.Limit{Count: 1, Per: 6 * time.Second}, MaxDelay: time.Second}
		if _, err := gcra.Take(t.Context(), m, hasty); err != nil {
			t.Fatal(err)
		}

		var denied *turns.WaitError
		if err := turns.Wait(t.Context(), m, hasty, patient); !errors.As(err, &denied) || denied.Policy != "hasty" || denied.RetryAfter() != 5*time.Second {
			t.Fatalf("got %v; want the hasty policy, in 5 s", err)
		}
		time.Sleep(denied.RetryAfter())
		if err := turns.Wait(t.Context(), m, hasty, patient); err != nil {
			t.Error(err)
		}
	})
}

// A wait that is too long is an error at once, and nothing is charged.
func TestWaitTooLong(t *testing.T) {
	const s = time.Second
	c := gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond, Cost: 1}
	with := func(change func(*gcra.Charge)) gcra.Charge {
		changed := c
		change(&changed)
		return changed
	}

	for _, tt := range []struct {
		name   string
		before gcra.Charge // taken three times; the fourth waits 3 s
		charge gcra.Charge
		within time.Duration // of the context; 0: no deadline
		want   *turns.WaitError
	}{
		{"MaxDelay", with(func(c *gcra.Charge) { c.MaxDelay = 2 * s }), with(func(c *gcra.Charge) { c.MaxDelay = 2 * s }), 0,
			&turns.WaitError{Subject: "partner", Policy: "p", Limit: everySecond, Needed: 3 * s, Patience: 2 * s}},
		{"MaxWait", c, with(func(c *gcra.Charge) { c.MaxWait = 2500 * time.Millisecond }), 0,
			&turns.WaitError{Subject: "partner", Policy: "p", Limit: everySecond, Needed: 3 * s, Patience: 2500 * time.Millisecond}},
		// A tenth is left for callers that are late.
		{"deadline", c, c, 2 * s, &turns.WaitError{Subject: "partner", Policy: "p", Limit: everySecond, Needed: 3 * s, Patience: 1800 * time.Millisecond}},
		{"cost above burst", c, with(func(c *gcra.Charge) { c.Cost = 2 }), 0,
			&turns.WaitError{Subject: "partner", Policy: "p", Limit: everySecond, Patience: 366 * 24 * time.Hour, Never: true}},
		{"long enough", c, with(func(c *gcra.Charge) { c.MaxWait = 3 * s }), 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := gcra.NewMemory()
				for range 3 {
					queued := tt.before
					if queued.MaxDelay == 0 {
						queued.MaxDelay = 366 * 24 * time.Hour
					}
					queued.MaxWait = queued.MaxDelay
					if r, err := gcra.Take(t.Context(), m, queued); err != nil || !r.Allowed {
						t.Fatalf("before: %+v, %v", r, err)
					}
				}

				ctx := t.Context()
				if tt.within > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.within)
					defer cancel()
				}

				begin := time.Now()
				err := turns.Wait(ctx, m, tt.charge)
				if tt.want == nil {
					if err != nil || time.Since(begin) != 3*s {
						t.Errorf("got %v after %v; want nil after 3s", err, time.Since(begin))
					}
					return
				}

				var got *turns.WaitError
				if !errors.As(err, &got) || *got != *tt.want || !errors.Is(err, turns.ErrWouldWait) {
					t.Errorf("got %#v; want %#v", err, tt.want)
				}
				if time.Since(begin) != 0 {
					t.Errorf("returned after %v; want at once", time.Since(begin))
				}

				peek := c
				peek.Cost, peek.MaxDelay = 0, 366*24*time.Hour
				if r, err := gcra.Take(t.Context(), m, peek); err != nil || r.ResetAfter != 3*s {
					t.Errorf("afterwards the bucket is full in %v (%v); want 3s as before", r.ResetAfter, err)
				}
			})
		})
	}
}

// When its context ends, Wait returns at once. Its slot stays taken: the next caller
// keeps its own.
func TestWaitCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := gcra.NewMemory()
		c := gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond, Cost: 1}
		if err := turns.Wait(t.Context(), m, c); err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		time.AfterFunc(300*time.Millisecond, cancel)
		if err := turns.Wait(ctx, m, c); !errors.Is(err, context.Canceled) || time.Since(begin) != 300*time.Millisecond {
			t.Errorf("got %v after %v; want context.Canceled after 300ms", err, time.Since(begin))
		}
		if err := turns.Wait(t.Context(), m, c); err != nil || time.Since(begin) != 2*time.Second {
			t.Errorf("the next: got %v after %v; want nil after 2s", err, time.Since(begin))
		}
	})
}

// Charges are only read, so that goroutines may share them. The race detector sees it.
func TestWaitSharedCharges(t *testing.T) {
	t.Parallel()
	shared := []gcra.Charge{
		{Subject: "partner", Policy: "5s", Limit: gcra.Limit{Count: 25, Per: 5 * time.Second}, Cost: 1},
		{Subject: "partner", Policy: "minute", Limit: gcra.PerMinute(300), Cost: 1},
	}

	want := slices.Clone(shared)
	partner := turns.Turns{Store: gcra.NewMemory(), Charges: shared}
	var callers sync.WaitGroup
	for range 12 {
		callers.Go(func() {
			if err := turns.Wait(t.Context(), partner.Store, shared...); err != nil {
				t.Error(err)
			}
			if err := partner.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
			if err := partner.Try(t.Context()); err != nil && !errors.Is(err, turns.ErrWouldWait) {
				t.Error(err)
			}
		})
	}

	callers.Wait()
	if !slices.Equal(shared, want) {
		t.Errorf("got %+v; want them unchanged", shared)
	}
}

// A forgetfulStore is a Memory that can lose its state.
type forgetfulStore struct{ memory atomic.Pointer[gcra.Memory] }

func (s *forgetfulStore) lose() { s.memory.Store(gcra.NewMemory()) }

func (s *forgetfulStore) Take(ctx context.Context, charges []gcra.Charge) (allowed bool, err error) {
	return s.memory.Load().Take(ctx, charges)
}

func (s *forgetfulStore) Refund(ctx context.Context, charges []gcra.Charge) error {
	return s.memory.Load().Refund(ctx, charges)
}

// After a loss of the state any interval of length D has at most B + D/T calls and B + 1
// more, with 60 callers in the queue that ask again when they have been served, and 60 that
// come after the loss.
func TestWaitLostState(t *testing.T) {
	const callers = 60
	for _, burst := range []int64{1, 5} {
		for _, loss := range []time.Duration{100 * time.Millisecond, 10500 * time.Millisecond, 20999 * time.Millisecond} {
			t.Run(fmt.Sprintf("burst %d, loss after %v", burst, loss), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := new(forgetfulStore)
					store.lose()
					ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
					defer cancel()

					begin := time.Now()
					var mu sync.Mutex
					var calls []time.Duration
					caller := func() {
						for turns.Wait(ctx, store, gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond.WithBurst(burst), Cost: 1}) == nil {
							mu.Lock()
							calls = append(calls, time.Since(begin))
							mu.Unlock()
						}
					}

					var running sync.WaitGroup
					for range callers {
						running.Go(caller)
					}
					time.Sleep(loss)
					store.lose()
					for range callers {
						running.Go(caller)
					}

					running.Wait()
					most := 0 // calls more than B + D/T
					for j := range calls {
						for i := range j + 1 {
							most = max(most, j-i+1-int(burst)-int((calls[j]-calls[i])/time.Second))
						}
					}

					if bound := int(burst) + 1; most > bound {
						t.Errorf("an interval has %d calls more than it should; want at most %d", most, bound)
					}
					if len(calls) < 175 {
						t.Errorf("got %d calls in 3 minutes; want one each second", len(calls))
					}
				})
			})
		}
	}
}
