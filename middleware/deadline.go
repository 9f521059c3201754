package middleware

import (
	"cmp"
	"context"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// acceptDelays lowers the delay that the charges accept to the time until the
// deadline of the request: it is better denied at once, and charged nothing, than
// held back until nobody waits for it.
func acceptDelays(ctx context.Context, charges []gcra.Charge) {
	for i := range charges {
		c := &charges[i]
		if c.MaxDelay == 0 {
			continue
		}
		deadline, ok := ctx.Deadline()
		if !ok {
			return
		}
		left := max(time.Until(deadline), time.Nanosecond) // 0 would mean MaxDelay
		c.MaxWait = min(cmp.Or(c.MaxWait, c.MaxDelay), left)
	}
}
