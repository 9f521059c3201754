package turns

import (
	"context"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Turns has the arguments of [Wait], for limits whose callers take turns in all processes
// that share the store. Any number of goroutines may share it. Without charges no turn
// has to wait.
type Turns struct {
	Store gcra.Store // required

	// Charges are the limits that a turn is charged to, as in [Wait]. They must not change
	// while in use. Cost is the units of a turn; 0 means 1. If the partner
	// counts in windows, let Burst + Count be what it allows, or with a store of package
	// slidinglog Count alone.
	Charges []gcra.Charge
}

// Do waits for a turn and makes the call, with the same context. Without a turn it returns
// the error of Wait, otherwise that of the call.
func (t Turns) Do(ctx context.Context, call func(context.Context) error) error {
	if err := t.Wait(ctx); err != nil {
		return err
	}
	return call(ctx)
}

// Wait returns when the turn comes; see the function [Wait].
func (t Turns) Wait(ctx context.Context) error {
	return Wait(ctx, t.Store, t.Charges...)
}

// Try takes a turn that has come, and does not wait for one. If there is none, or others
// are in the queue, it returns a [*WaitError].
func (t Turns) Try(ctx context.Context) error {
	w := waiter{ctx: ctx, store: t.Store, charges: t.Charges}
	return w.try()
}
