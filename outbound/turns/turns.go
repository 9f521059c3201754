package turns

import (
	"context"
	"fmt"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Turns are the turns that all callers of some limits take, in all processes that
// share the store. It is a value with the arguments of [Wait]; any number of
// goroutines may share it. A Turns without a store panics. Without charges every
// turn comes at once.
type Turns struct {
	Store gcra.Store

	// Charges are the limits that a turn is charged to: all or none. Cost is the
	// units of a turn, and must not be 0: such a charge would never wait. MaxDelay
	// of 0 is without bound, unlike in Store.Take. MaxWait is the patience of each
	// caller; 0 means MaxDelay. The charges are only read, and must not change while
	// in use. If the partner counts in windows, let Burst + Count be what it allows.
	Charges []gcra.Charge
}

// Do waits for a turn and makes the call, with the same context. Without a turn it
// returns the error of Wait, and does not call. Otherwise its error is the call's.
func (t Turns) Do(ctx context.Context, call func(context.Context) error) error {
	if err := t.Wait(ctx); err != nil {
		return err
	}
	return call(ctx)
}

// Wait returns when the turn comes; see the function [Wait]. A charge of Cost 0 is an
// error here; for a cost that may be 0, use the function.
func (t Turns) Wait(ctx context.Context) error {
	if err := t.checkCosts(); err != nil {
		return err
	}
	return Wait(ctx, t.Store, t.Charges...)
}

// Try takes a turn that has come, and never waits for one. If there is none, or
// others are in the queue, it returns a [*WaitError] at once and nothing is
// charged: its RetryAfter is when a turn comes. Other errors are those of Wait.
func (t Turns) Try(ctx context.Context) error {
	if err := t.checkCosts(); err != nil {
		return err
	}
	if err := checkQueues(t.Charges); err != nil {
		return err
	}
	w := waiter{ctx: ctx, store: t.Store, charges: t.Charges}
	denied, err := w.try()
	if denied != nil {
		return denied
	}
	return err
}

// checkCosts finds a Cost that was left out. Without it the limit would not count.
func (t Turns) checkCosts() error {
	for _, c := range t.Charges {
		if c.Cost == 0 {
			return fmt.Errorf("turns: policy %.80q, subject %.80q: Cost is 0, so this limit would never wait; want the units of a turn, such as 1",
				c.Policy, c.Subject)
		}
	}
	return nil
}
