package middleware

import (
	"fmt"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// useLimit sets the limit of a request's charge, and its clamp: B*T plus the longer of
// MaxDelay and the time in which MaxDebt is paid. MaxWait leaves that room to Settle
// and Spend. The clamp of a quota is wide enough already.
func (p *policy) useLimit(c *gcra.Charge, l gcra.Limit) {
	c.Limit, c.MaxDelay, c.MaxWait = l, p.MaxDelay, 0
	switch {
	case l.IsQuota():
		c.MaxDelay = 0
	case p.MaxDebt > 0:
		c.MaxWait = max(p.MaxDelay, time.Nanosecond) // 0 would mean MaxDelay
		c.MaxDelay = max(p.MaxDelay, time.Duration(p.MaxDebt)*l.Interval())
	}
}

// overdraw lets a charge take up to debt units more than are left: it becomes a charge of
// a larger bucket, which has the same TAT.
func overdraw(c *gcra.Charge, debt int64) {
	switch {
	case debt == 0:
	case c.Limit.IsQuota():
		c.Limit.Count += debt
	default:
		c.Limit.Burst = c.Limit.Capacity() + debt
	}
}

// keepDebt keeps the clamp of the old limit, after a Reload, from erasing debt of the new
// one. Quotas have another clamp and no MaxDelay.
func keepDebt(c *gcra.Charge) {
	if !c.Limit.IsQuota() {
		c.MaxDelay = maxDelay
	}
}

// checkDebt returns nil for a limit whose buckets the store keeps with MaxDebt.
func (p *Policy) checkDebt(store gcra.Store, l gcra.Limit) error {
	if p.MaxDebt == 0 {
		return nil
	}
	c := gcra.Charge{Limit: l}
	overdraw(&c, p.MaxDebt)
	if err := checkLimit(store, c.Limit); err != nil {
		return fmt.Errorf("is %d, which makes %v of %v: %w", p.MaxDebt, c.Limit, l, err)
	}
	return nil
}
