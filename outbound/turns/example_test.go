package turns_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// A partner allows 25 calls in 5 seconds and 300 a minute, so Burst + Count is 25 and
// 300. All processes that share the store make each call in its turn; one that would
// have to wait for more than a second fails at once.
func ExampleTurns() {
	partner := turns.Turns{
		Store: gcra.NewMemory(), // or redisstore.Open, for many processes
		Charges: []gcra.Charge{
			{Subject: "partner.example", Policy: "5s", Limit: gcra.Limit{Count: 24, Per: 5 * time.Second, Burst: 1}, Cost: 1, MaxWait: time.Second},
			{Subject: "partner.example", Policy: "minute", Limit: gcra.PerMinute(280).WithBurst(20), Cost: 1, MaxWait: time.Second},
		},
	}

	start := time.Now()
	for i := range 3 {
		err := partner.Do(context.Background(), func(context.Context) error {
			fmt.Println("call", i)
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(time.Since(start) >= 400*time.Millisecond)

	// Output:
	// call 0
	// call 1
	// call 2
	// true
}

// Try never waits: a call whose turn has not come is left out or made later.
func ExampleTurns_Try() {
	partner := turns.Turns{
		Store:   gcra.NewMemory(),
		Charges: []gcra.Charge{{Subject: "partner.example", Policy: "turns", Limit: gcra.PerMinute(1), Cost: 1}},
	}

	for range 2 {
		err := partner.Try(context.Background())
		var denied *turns.WaitError
		switch {
		case err == nil:
			fmt.Println("call")
		case errors.As(err, &denied):
			fmt.Println(denied.Limit, "again in", denied.RetryAfter().Round(time.Second))
		default:
			log.Fatal(err)
		}
	}

	// Output:
	// call
	// 1/minute again in 1m0s
}

// Calls to a partner are at least a tenth of a second apart, over all processes that
// share the store. A call that would have to wait for more than a second fails at once.
func ExampleWait() {
	store := gcra.NewMemory() // or redisstore.Open, for many processes
	call := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return turns.Wait(ctx, store, gcra.Charge{
			Subject: "partner.example", Policy: "turns", Cost: 1,
			Limit: gcra.Limit{Count: 1, Per: 100 * time.Millisecond},
		})
	}

	start := time.Now()
	for range 3 {
		if err := call(context.Background()); errors.Is(err, turns.ErrWouldWait) {
			fmt.Println("too many are waiting; nothing was charged")
			return
		}
	}
	fmt.Println(time.Since(start) >= 200*time.Millisecond)

	// Output: true
}
