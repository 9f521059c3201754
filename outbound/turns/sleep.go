package turns

import (
	"context"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/await"
)

// lastPart is how long before its end sleep changes from timers to sleepPrecise.
const lastPart = 2 * time.Millisecond

// preciseSlots bounds the calls of sleepPrecise: each takes a thread of the system.
var preciseSlots = make(chan struct{}, 8)

// sleep returns after d, or with the context's error if that ends first.
//
// Linux ends a wait late by up to a thousandth of its length, and the runtime's
// timers by up to a millisecond. An idle process would wake 20 ms late after 20 s,
// and its call would be 980 ms before one that is due a second later. So sleep
// waits in parts, each a fiftieth of the one before, and the last of them is precise.
func sleep(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	for d > lastPart {
		if err := await.Sleep(ctx, d-max(lastPart, d/50)); err != nil {
			return err
		}
		d = time.Until(end)
	}

	if left := time.Until(end); left > 0 {
		select {
		case preciseSlots <- struct{}{}:
			sleepPrecise(left)
			<-preciseSlots
		default:
		}
	}

	// Time is left on other systems, without a slot, after a signal, and in testing/synctest,
	// where time stands still until all goroutines wait.
	return await.Sleep(ctx, time.Until(end))
}
