package histories

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
)

// The faults that can be planted.
const (
	dropped   = "a charge dropped"
	doubled   = "a charge doubled"
	refunded  = "a refund applied twice"
	resent    = "a call whose reply was lost sent twice more"
	forgotten = "a settlement that gives nothing back"

	// Planted in the history.
	unmentioned = "a server that forgets everything and is not said to"
)

// A plant makes a store that works behave as if it had a fault. It changes the server
// within the recorded call, without the recorder. If a planted call fails, nothing may
// have been planted, and the test that wants it found fails.
type plant struct {
	Fault string
	Often bool // in each call, not only in the first of each process of which it is noticed

	planted atomic.Int64
}

// due reports whether the fault is to be planted now.
func (p *plant) due(fault string, noticed bool) bool {
	switch {
	case p == nil || p.Fault != fault:
		return false
	case p.Often:
		p.planted.Add(1)
		return true
	default:
		return noticed && p.planted.CompareAndSwap(0, 1)
	}
}

// noticed reports whether a change of a bucket of the charges is noticed: it is not full
// again before the end of a history.
func noticed(charges []gcra.Charge) bool {
	return slices.ContainsFunc(charges, func(c gcra.Charge) bool {
		return slow(c) && c.Result.ResetAfter > time.Duration(c.Result.Taken)*c.Limit.Interval()+5*time.Second
	})
}

// slow reports whether what the charge takes is not back before the end of a history.
func slow(c gcra.Charge) bool { return !c.Peek && c.Limit.Interval() >= time.Second }

// afterTake drops charges or takes them again.
func (p *plant) afterTake(s gcra.Store, charges []gcra.Charge, allowed bool, err error) {
	ctx := context.Background()
	again := func() {
		more := slices.Clone(charges)
		for i := range more {
			if !more[i].Limit.IsQuota() {
				more[i].Limit.Burst *= 2 // there is room for it
			}
		}
		_, _ = s.Take(ctx, more)
	}

	switch {
	case err != nil && !errors.Is(err, redisstore.ErrUnavailable) && p.due(resent, slices.ContainsFunc(charges, slow)):
		again()
		again()
	case allowed && p.due(dropped, noticed(charges)):
		_ = s.Refund(ctx, slices.Clone(charges))
	case allowed && p.due(doubled, noticed(charges)):
		again()
	}
}

// afterRefund refunds again.
func (p *plant) afterRefund(s gcra.Store, charges []gcra.Charge) {
	if p.due(refunded, noticed(charges)) {
		_ = s.Refund(context.Background(), slices.Clone(charges))
	}
}
