package send

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Each context ends at its own deadline, whether that is before or after those of earlier ones, and not before.
func TestCallTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newCallTimer()
		start := func(d time.Duration) context.Context { return timer.start(time.Now().Add(d), d) }

		for _, d := range []time.Duration{50, 20, 30, 50} {
			start(40 * time.Millisecond)
			time.Sleep(10 * time.Millisecond)
			if !timer.stop() {
				t.Fatal("in time: got a timer that is used up")
			}

			d *= time.Millisecond
			ctx := start(d)
			time.Sleep(d - 1)
			synctest.Wait()
			if err := ctx.Err(); err != nil {
				t.Fatalf("of %v, before its deadline: got %v; want none", d, err)
			}

			time.Sleep(1)
			synctest.Wait()
			if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("of %v: got %v; want that its time is up", d, err)
			}
			if timer.stop() {
				t.Fatalf("of %v, after its deadline: got a timer that is not used up", d)
			}
			timer = newCallTimer()
		}
	})
}
