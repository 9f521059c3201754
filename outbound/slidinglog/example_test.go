package slidinglog_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
)

// A partner allows 25 calls in any 5 seconds and 300 in any minute. An admission
// makes both charges or none. In production use slidinglog.New(client, cfg), which
// all processes share.
func Example() {
	store := slidinglog.NewMemory(slidinglog.Config{})
	call := func(n int64) []gcra.Charge {
		return []gcra.Charge{
			{Subject: "partner", Policy: "short", Limit: gcra.Limit{Count: 25, Per: 5 * time.Second}, Cost: n},
			{Subject: "partner", Policy: "long", Limit: gcra.PerMinute(300), Cost: n},
		}
	}

	for _, n := range []int64{24, 1, 1} {
		charges := call(n)
		allowed, err := store.Take(context.Background(), charges)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(allowed, charges[0].Result.Remaining, charges[1].Result.Remaining)
	}

	// Output:
	// true 1 276
	// true 0 275
	// false 0 275
}
