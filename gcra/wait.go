package gcra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// ErrWouldWait matches every [*WaitError] in errors.Is.
var ErrWouldWait = errors.New("would have to wait too long")

// WaitError is the error of [Wait] if the slot would come too late. Nothing was
// charged.
type WaitError struct {
	Subject, Policy string        // of the charge that would have to wait longest
	Needed          time.Duration // how long that charge would have to wait; 0 when Never
	Allowed         time.Duration // how long it may wait
	Never           bool          // the cost is above the burst: no wait is long enough
}

func (e *WaitError) Error() string {
	if e.Never {
		return fmt.Sprintf("gcra: policy %q, subject %q: the cost is above the burst: no wait is long enough", tat.Clip(e.Policy), tat.Clip(e.Subject))
	}
	return fmt.Sprintf("gcra: policy %q, subject %q: %v: needs %v, may take %v", tat.Clip(e.Policy), tat.Clip(e.Subject), ErrWouldWait, e.Needed, e.Allowed)
}

// Is makes errors.Is(err, ErrWouldWait) true.
func (e *WaitError) Is(target error) bool { return target == ErrWouldWait }

// Wait takes the charges and returns when their turn comes. Many processes can
// take turns on one limit: with Limit{Count: 1, Per: time.Second}, their turns are
// at least a second apart.
//
// It reserves a slot by one call of Take and sleeps until then, so slots go to
// callers in the order of their calls, over all processes, without polling. The
// slot is that of the charge that has to wait longest; all are taken or none. If
// the charges are passed as a slice, charges..., their results are filled in.
//
// A charge may wait for up to its MaxDelay, which is the same for all callers of a
// limit (0 here means without bound), and up to MaxWait, which is this caller's;
// the context's deadline shortens both. If the slot would come later, Wait
// returns a [*WaitError] at once and nothing is charged. Any other error of
// Store.Take is returned at once too: the turn may not have come.
//
// It never returns early. If it returns late, the next caller follows that much
// sooner: a tenth of a millisecond on Linux if the machine is not busy, elsewhere
// as late as timers are.
//
// A caller whose context ends while it sleeps returns at once with the context's
// error. Its slot stays taken, because later callers have theirs.
func Wait(ctx context.Context, s Store, charges ...Charge) error {
	queued := slices.Clone(charges)
	deadline, bounded := ctx.Deadline()
	for i := range queued {
		c := &queued[i]
		if c.MaxDelay == 0 {
			c.MaxDelay = tat.MaxDelay
		}
		if c.MaxWait == 0 {
			c.MaxWait = c.MaxDelay
		}
		if bounded {
			// Not 0, which would mean as long as MaxDelay.
			c.MaxWait = min(c.MaxWait, max(time.Until(deadline), 1))
		}
	}
	allowed, err := s.Take(ctx, queued)
	if err != nil {
		return err
	}
	var delay time.Duration
	for i := range queued {
		charges[i].Result = queued[i].Result
		if !queued[i].Shadow {
			delay = max(delay, queued[i].Result.Delay)
		}
	}
	if !allowed {
		return tooLate(queued)
	}
	if delay == 0 {
		return nil
	}
	return sleep(ctx, delay)
}

// tooLate describes the charge that would have to wait longest.
func tooLate(charges []Charge) *WaitError {
	var worst *WaitError
	for _, c := range charges {
		if c.Result.Allowed || c.Shadow {
			continue
		}
		allowed := min(c.MaxWait, c.MaxDelay)
		e := &WaitError{c.Subject, c.Policy, c.Result.RetryAfter + allowed, allowed, c.Result.Never}
		if e.Never {
			e.Needed = 0
		}
		if worst == nil || e.Never && !worst.Never || !worst.Never && e.Needed > worst.Needed {
			worst = e
		}
	}
	return worst
}
