package gcra_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// At least a tenth of a second between any two calls to a partner, over every
// process that has the same store; who would have to wait for more than a
// second is told so at once.
func ExampleWait() {
	store := gcra.NewMemory() // or gcra.Open, for many processes
	call := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return gcra.Wait(ctx, store, gcra.Charge{
			Subject: "partner.example", Policy: "turns", Cost: 1,
			Limit: gcra.Limit{Count: 1, Per: 100 * time.Millisecond},
		})
	}

	start := time.Now()
	for range 3 {
		if err := call(context.Background()); errors.Is(err, gcra.ErrWouldWait) {
			fmt.Println("too many are waiting; nothing was charged")
			return
		}
	}
	fmt.Println(time.Since(start) >= 200*time.Millisecond)
	// Output: true
}
