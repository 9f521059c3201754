package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Settle sets what the request costs these policies in the end, one or more by name. They
// have charged an estimate: Settle gives back what was too much or charges the rest, and
// the last call counts. Shadows are settled too. A name that the limiter of this Decision
// does not have is an error; a policy that did not apply to this request is left alone.
//
// The rest may be more than what is left. Settle takes what is left and as many units more
// as the policy may be in debt, which later requests wait for. What it cannot take is in a
// [*SettleError]. Each policy is settled by itself: one that is out
// of units does not keep others from being charged, and a process that dies meanwhile
// may have settled some of them.
//
// Of a quota, Settle charges the period that is current now, and gives nothing back once
// the period of the request is over. While the store is away, requests that this server
// has decided alone are settled on its own state; for others Settle returns the store's
// error. It may be called again then: what a failed call has charged may be charged
// again, and is never given back twice.
//
// After a denial, and of a policy after its Refund, Settle does nothing. It goes on if the
// client hangs up, and does not change Results. A negative cost is an error.
func (d *Decision) Settle(ctx context.Context, cost int64, policies ...string) error {
	if cost < 0 {
		return fmt.Errorf("ratelimit: settle: cost is %d; want 0 or more", cost)
	}
	var missing map[string]int64
	err := d.change("settle", policies, func(a *admission, chosen func(*gcra.Charge) bool) (err error) {
		missing, err = a.setCost(ctx, chosen, func(int64) int64 { return cost })
		return err
	})
	if len(missing) > 0 {
		err = errors.Join(err, &SettleError{missing})
	}
	return err
}

// SettleError is the error of [Decision.Settle] where a request has cost more than is left
// with the debt that the policy allows.
type SettleError struct {
	Missing map[string]int64 // units that were not charged, by policy, without shadows
}

func (e *SettleError) Error() string {
	text := "ratelimit: settle: "
	for i, name := range slices.Sorted(maps.Keys(e.Missing)) {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d units of %s", e.Missing[name], name)
	}
	return text + " were not charged: no more were left, with the debt that the policy allows"
}
