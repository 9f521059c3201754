package middleware

import (
	"context"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// acceptDelays lets the charges wait as long as their limits allow, but only until the
// deadline of the request: it is better denied at once, and charged nothing, than held back
// until nobody waits for it.
func acceptDelays(ctx context.Context, charges []gcra.Charge) {
	for i := range charges {
		c := &charges[i]
		if c.MaxDelay == 0 {
			continue
		}
		c.MaxWait = c.MaxDelay
		if deadline, ok := ctx.Deadline(); ok {
			c.MaxWait = max(min(c.MaxDelay, time.Until(deadline)), 0)
		}
	}
}
