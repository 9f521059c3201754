package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// fixedWindow is an example of your own gcra.Store. It counts the requests in each window
// of the clock (10:00:00 to 10:00:10, and so on). That is simple and cheap, and allows
// twice the limit around a window's edge.
//
// A store has two duties: an admission takes all of its charges or none, and every Result
// is the state of its limit. Test yours with storetest.Run, as fixed_test.go does. This
// one has no MaxDelay and never deletes a key.
type fixedWindow struct {
	now func() time.Time

	mu     sync.Mutex
	counts map[key]count
}

type key struct{ subject, policy string }

type count struct {
	at    int64 // time of the last change, in nanoseconds since 1970
	units int64 // used in the window of that time
}

// Take implements gcra.Store.
func (f *fixedWindow) Take(ctx context.Context, charges []gcra.Charge) (bool, error) {
	if err := validate(ctx, charges); err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now().UnixNano()

	// First decide without changes. A key may occur twice, so each charge counts the
	// units of earlier ones.
	pending := make(map[key]int64)
	costs := make([]int64, len(charges))
	admitted := true
	for i := range charges {
		c := &charges[i]
		k := key{c.Subject, c.Policy}
		used := f.used(c, now) + pending[k]
		cost := units(c)
		if c.Late { // what is left
			cost = min(cost, max(c.Limit.Count-used, 0))
		}

		allowed := cost == 0 || cost <= c.Limit.Count-used // a peek is never denied
		c.Result = state(c, used, now)
		c.Result.Allowed, c.Result.Never = allowed, cost > c.Limit.Count
		switch {
		case allowed:
			costs[i] = cost
			pending[k] += cost
		case !c.Result.Never: // a cost above the count never passes
			c.Result.RetryAfter = untilEnd(c, now)
		}
		if !allowed && !c.Shadow { // a shadow never denies the admission
			admitted = false
		}
	}

	if !admitted {
		return false, nil
	}

	// Then take.
	for i := range charges {
		if c := &charges[i]; costs[i] > 0 {
			c.Result = f.set(c, f.used(c, now)+costs[i], now)
			c.Result.Taken = costs[i]
		}
	}
	return true, nil
}

// Refund implements gcra.Store.
func (f *fixedWindow) Refund(ctx context.Context, charges []gcra.Charge) error {
	if err := validate(ctx, charges); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now().UnixNano()
	for i := range charges {
		c := &charges[i]
		c.Result = f.set(c, max(f.used(c, now)-units(c), 0), now)
	}
	return nil
}

// units is how many units a charge asks for.
func units(c *gcra.Charge) int64 {
	if c.Peek {
		return 0
	}
	return max(c.Cost, 1)
}

// CheckLimit is as gcra.Store documents it.
func (*fixedWindow) CheckLimit(l gcra.Limit) error {
	switch {
	case l.IsQuota():
		return fmt.Errorf("limit is %v; want a rate: the windows of this store follow no calendar", l)
	case l.Burst != 0 && l.Burst != l.Count:
		return fmt.Errorf("burst is %d; want 0 or the count: a window is all or nothing", l.Burst)
	}
	return l.Validate()
}

// validate rejects what this store does not support, before any change.
func validate(ctx context.Context, charges []gcra.Charge) error {
	for i := range charges {
		c := &charges[i]
		if err := (*fixedWindow)(nil).CheckLimit(c.Limit); err != nil {
			return err
		}
		if c.Cost < 0 || c.MaxDelay != 0 || c.MaxWait < 0 || c.MaxDebt != 0 {
			return errors.New("want a cost of 0 (1) or more, no MaxDelay and no MaxDebt")
		}
	}
	return ctx.Err()
}

// used returns the units used in the current window.
func (f *fixedWindow) used(c *gcra.Charge, now int64) int64 {
	n := f.counts[key{c.Subject, c.Policy}]
	if n.at/int64(c.Limit.Per) != now/int64(c.Limit.Per) {
		return 0
	}
	return n.units
}

// set changes the units used in the current window, and returns the state.
func (f *fixedWindow) set(c *gcra.Charge, units, now int64) gcra.Result {
	if f.counts == nil {
		f.counts = make(map[key]count)
	}
	f.counts[key{c.Subject, c.Policy}] = count{now, units}
	return state(c, units, now)
}

// state returns the Result of a limit with so many units used.
func state(c *gcra.Charge, used, now int64) gcra.Result {
	r := gcra.Result{Allowed: true, Remaining: max(c.Limit.Count-used, 0)}
	if used > 0 {
		r.ResetAfter = untilEnd(c, now)
	}
	return r
}

// untilEnd returns the time until the window ends.
func untilEnd(c *gcra.Charge, now int64) time.Duration {
	return c.Limit.Per - time.Duration(now%int64(c.Limit.Per))
}
