package turns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// ErrWouldWait matches every [*WaitError] in errors.Is.
var ErrWouldWait = errors.New("would have to wait too long")

// WaitError is the error of [Turns] and [Wait] if the turn would come too late. Usually
// nothing was charged.
type WaitError struct {
	Subject, Policy string        // of the charge that is denied for longest
	Limit           gcra.Limit    // of that charge; zero if the wait is not for a limit
	Needed          time.Duration // how long that charge would have to wait; 0 when Never
	Patience        time.Duration // how long it may wait; 0 for Try
	Never           bool          // the cost is above the burst: no wait is long enough
}

// Error contains the limit, if there is one, as Limit.String writes it, such as "25/5s".
func (e *WaitError) Error() string {
	limit := ""
	if e.Limit != (gcra.Limit{}) {
		limit = "limit " + e.Limit.String() + ", "
	}
	reason := fmt.Sprintf("%v: needs %v, may take %v", ErrWouldWait, e.Needed, e.Patience)
	if e.Never {
		reason = "the cost is above the burst: no wait is long enough"
	}
	return fmt.Sprintf("turns: %spolicy %.80q, subject %.80q: %s", limit, e.Policy, e.Subject, reason)
}

// Is makes errors.Is(err, ErrWouldWait) true.
func (e *WaitError) Is(target error) bool { return target == ErrWouldWait }

// RetryAfter is how long to wait before the same call again, with the same patience: as a
// rule it then gets a turn, if no other caller comes first. It is 0 when Never.
func (e *WaitError) RetryAfter() time.Duration { return max(e.Needed-e.Patience, 0) }

// Wait takes the charges and returns when their turn comes. Many processes can take turns
// on one limit: with Limit{Count: 1, Per: time.Second}, they take about one a second.
//
// A caller that has to wait reserves a slot behind those reserved before, by all
// processes, and sleeps until then. With several charges, the latest slot counts. The
// charges are only read: goroutines may share them.
//
// A charge may wait for up to its MaxDelay, which must be the same for all callers of a
// limit, and up to MaxWait, which is this caller's. Unlike in Store.Take, 0 means 366 days
// in both. The context's deadline bounds them too, less some time for the store's answer and
// for other callers that are late. If the slot would come later, Wait returns a
// [*WaitError], usually at once and with nothing charged. A turn may come later than its
// slot if other callers are late or the state is lost. With an error of the store, too, the
// turn has not come. A quota is an error.
//
// If the context ends while the caller sleeps, the error wraps the context's and says when
// the turn is. The slot stays taken.
//
// If Wait returns late, the next caller may follow that much sooner.
//
// # Lost state
//
// A slot says when to ask again; it is no permission. Each limit has two buckets: Subject
// and Policy name the queue, and the other, whose policy has a suffix that begins with a
// zero byte, counts the calls. When its slot comes, a caller is charged there, and if that is
// denied, it reserves a new slot. SECURITY.md bounds the turns that a loss of state adds.
//
// # Cost
//
// Without a queue a turn is usually one Take with two charges for each limit. In a queue it
// may be three Takes: a denial, the slot, and the charge when the slot comes.
//
// Store.Refund and [gcra.Reset] with the same charges do not give a turn back: they only
// shorten the queue.
//
// # Patience
//
// A denied caller has no place in the queue: a free slot goes to the caller that asks first,
// and some callers may get none. Be more patient than the queue is long instead of asking
// again, or wait for RetryAfter.
func Wait(ctx context.Context, s gcra.Store, charges ...gcra.Charge) error {
	w := waiter{ctx: ctx, store: s, charges: charges, began: time.Now()}
	err := w.try()
	w.roundTrip = time.Since(w.began)

	for w.denied {
		if err := w.reserve(); err != nil {
			return err
		}
		if err = w.confirm(); err != nil && ctx.Err() != nil && !w.denied {
			return fmt.Errorf("turns: limit %v, policy %.80q, subject %.80q: the turn is at %s: %w",
				w.next.Limit, w.next.Policy, w.next.Subject, w.slot.Format(time.RFC3339Nano), err)
		}
	}
	return err
}

// A waiter is a call of Wait.
type waiter struct {
	ctx       context.Context
	store     gcra.Store
	charges   []gcra.Charge
	began     time.Time
	roundTrip time.Duration // of the last call of the store
	denied    bool          // whether the store denied the last call; its errors may be a WaitError, too
	slot      time.Time     // the time that is reserved
	next      *WaitError    // the charge whose slot it is: the latest of all
}

// try takes a turn, or returns a *WaitError if it has to wait. A quota is an error, and so is a negative MaxWait.
func (w *waiter) try() error {
	for _, c := range w.charges {
		if c.Limit.IsQuota() {
			return fmt.Errorf("turns: policy %.80q: limit is %v, a quota, which has no queue; want a rate, or Take", c.Policy, c.Limit)
		}
		if c.MaxWait < 0 {
			return fmt.Errorf("turns: policy %.80q: MaxWait is %v; want 0 (as long as the context allows) or more", c.Policy, c.MaxWait)
		}
	}

	_, err := w.take(append(w.queue(0), w.calls(0)...))
	return err
}

// reserve takes a slot in the queue.
func (w *waiter) reserve() (err error) {
	deadline, _ := w.ends()
	queued := w.queue(time.Until(deadline) - 2*w.roundTrip)

	asked := time.Now()
	w.next, err = w.take(queued)
	answered := time.Now()
	w.roundTrip = answered.Sub(asked)
	if err != nil {
		return err
	}

	w.slot = answered.Add(w.next.Needed)
	late := w.slot.Add(w.roundTrip).Sub(deadline)
	if w.next.Needed == 0 || late <= 0 {
		return nil
	}

	// The call took longer than expected. Those who have reserved since then
	// keep their slots.
	taken := slices.DeleteFunc(slices.Clone(queued), func(c gcra.Charge) bool { return !c.Result.Allowed })
	if err := w.store.Refund(context.WithoutCancel(w.ctx), taken); err != nil {
		return err
	}
	w.next.Needed += w.roundTrip
	w.next.Patience = w.next.Needed - late
	return w.next
}

// confirm sleeps until the slot and takes the turn, or returns a *WaitError if the slot
// is no longer this caller's.
func (w *waiter) confirm() error {
	_, turn := w.ends()
	calls := w.calls(turn.Sub(w.slot))

	// Ask so early that the answer comes at the time of the slot.
	early := w.roundTrip
	for _, c := range calls {
		early = min(early, c.MaxDelay/2)
	}
	if err := sleep(w.ctx, time.Until(w.slot)-early); err != nil {
		return err
	}

	call, err := w.take(calls)
	if err != nil {
		return err
	}
	return sleep(w.ctx, max(call.Needed, time.Until(w.slot)))
}

// ends returns the latest time for the caller's slot, and for its turn: if callers before it are late, the turn
// comes after the slot by up to the MaxDelay of the calls. So much is left before the end of the context, or a
// tenth of the patience. After MaxWait a turn may come by leastGrace, or a slot at its end would be lost.
func (w *waiter) ends() (slot, turn time.Time) {
	slot = w.began.Add(gcra.MaxDelay)
	turn = slot.Add(leastGrace)
	if end, ok := w.ctx.Deadline(); ok && end.Before(slot) {
		grace := time.Duration(0)
		for _, c := range w.calls(0) {
			grace = max(grace, c.MaxDelay)
		}
		slot, turn = end.Add(-min(grace, max(end.Sub(w.began), 0)/10)), end
	}

	for _, c := range w.charges {
		if c.MaxWait <= 0 || c.Shadow {
			continue
		}
		end := w.began.Add(min(c.MaxWait, gcra.MaxDelay))
		if end.Before(slot) {
			slot = end
		}
		if end = end.Add(leastGrace); end.Before(turn) {
			turn = end
		}
	}
	return slot, turn
}

// queue returns the charges on the queue for a caller that waits for most at most.
func (w *waiter) queue(most time.Duration) []gcra.Charge {
	most = max(most, 0)
	queued := slices.Clone(w.charges)
	for i := range queued {
		c := &queued[i]
		c.MaxDelay = cmp.Or(c.MaxDelay, gcra.MaxDelay)
		c.MaxWait = min(cmp.Or(c.MaxWait, most), most, c.MaxDelay)
	}
	return queued
}

const (
	callsSuffix = "\x00calls"
	leastGrace  = 50 * time.Millisecond
)

// calls returns the charges on the buckets that count the calls.
func (w *waiter) calls(most time.Duration) []gcra.Charge {
	// The TAT of the queue cannot show whether a slot still stands: after a loss of state, newcomers reserve the same
	// times. These buckets delay by at most MaxDelay, so after a loss, in which they are full again, of the turns granted
	// before only those delayed by less than that remain: a loss adds a burst, and what the limit allows in MaxDelay.
	calls := slices.Clone(w.charges)
	for i := range calls {
		c := &calls[i]
		c.Policy += callsSuffix
		// A store that has hung runs the charges of callers that have given up: with less than an
		// Interval, they take no turn of later ones.
		c.MaxDelay = max(c.Limit.Interval()/2, leastGrace)
		c.MaxWait = min(max(most, 0), c.MaxDelay)
	}
	return calls
}

// take is Store.Take. It returns the charge that has to wait longest, also as the error if
// the charges are denied.
func (w *waiter) take(charges []gcra.Charge) (*WaitError, error) {
	allowed, err := w.store.Take(w.ctx, charges)
	next := longest(charges)
	if w.denied = err == nil && !allowed; w.denied {
		return next, next
	}
	return next, err
}

// longest describes the charge that is denied for longest or, if none is, has to wait longest.
func longest(charges []gcra.Charge) *WaitError {
	found := new(WaitError)
	for _, c := range charges {
		if c.Shadow || found.Never {
			continue
		}

		e := WaitError{
			Subject: c.Subject, Policy: strings.TrimSuffix(c.Policy, callsSuffix), Limit: c.Limit,
			Needed: c.Result.Delay, Patience: c.MaxWait, Never: c.Result.Never,
		}

		if !c.Result.Allowed && !e.Never {
			e.Needed = c.Result.RetryAfter + e.Patience
		}

		if e.Never || cmp.Or(cmp.Compare(e.RetryAfter(), found.RetryAfter()), cmp.Compare(e.Needed, found.Needed)) > 0 {
			*found = e
		}
	}
	return found
}
