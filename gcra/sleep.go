package gcra

import (
	"context"
	"time"
)

// fine is how long before its end a sleep is left to nap, which is more exact
// than a timer.
const fine = 2 * time.Millisecond

// naps is how many may nap at a time, for each takes a thread of the system.
var naps = make(chan struct{}, 8)

// sleep returns after d, or with the context's error if that ends first.
//
// Linux ends a wait late by up to a thousandth of its length, and the runtime
// waits for whole milliseconds there: an idle process would wake up 20 ms late
// after 20 s, and calls a second apart be seen 980 ms apart. So it sleeps by
// parts, each a fiftieth of the one before, and naps in the end.
func sleep(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	for canNap && d > fine {
		if err := doze(ctx, d-max(fine, d/50)); err != nil {
			return err
		}
		d = time.Until(end)
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
