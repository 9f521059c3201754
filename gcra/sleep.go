package gcra

import (
	"context"
	"time"
)

// fine is how long before its end a sleep is left to nap, which is more exact
// than the runtime's timers: on Linux these wait for whole milliseconds, so that
// an idle process wakes up to one late, each time by another part of it, and
// calls a second apart would be seen 999 ms apart.
const fine = 2 * time.Millisecond

// naps is how many may nap at a time, for each takes a thread of the system.
var naps = make(chan struct{}, 8)

// sleep returns after d, or with the context's error if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	if canNap && d > fine {
		if err := doze(ctx, d-fine); err != nil {
			return err
		}
	}
	if left := time.Until(end); canNap && left > 0 {
		select {
		case naps <- struct{}{}:
			nap(left)
			<-naps
		default:
		}
	}
	// What is left where nobody naps, where too many do, and where time stands
	// still until all sleep (testing/synctest).
	return doze(ctx, time.Until(end))
}

// doze is sleep by the runtime's timers.
func doze(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
