package gcra_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// One limit, in this process.
func ExampleMemory() {
	store := gcra.NewMemory()
	for range 3 {
		result, err := gcra.Take(context.Background(), store, gcra.Charge{
			Subject: "ip:192.0.2.7", Policy: "login", Limit: gcra.PerHour(2), Cost: 1,
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.Allowed, result.Remaining, result.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 30m0s
}

// A job that may not run now goes back into the queue. If the store fails, jobs wait too.
func ExampleTake_queue() {
	store := gcra.NewMemory()
	for _, job := range []string{"first", "second", "third"} {
		res, err := gcra.Take(context.Background(), store, gcra.Charge{Subject: "project:123", Policy: "jobs", Limit: gcra.PerHour(2), Cost: 1})
		switch {
		case err != nil:
			fmt.Println(job, "again in a second:", err)
		case res.Allowed:
			fmt.Println(job, "runs")
		default:
			fmt.Println(job, "again in", res.RetryAfter.Round(time.Minute))
		}
	}

	// Output:
	// first runs
	// second runs
	// third again in 30m0s
}

// Two windows in one admission: both are charged, or neither.
func ExampleStore_twoWindows() {
	store := gcra.NewMemory()
	admission := []gcra.Charge{
		{Subject: "user:ada", Policy: "burst", Limit: gcra.PerMinute(10), Cost: 1},
		{Subject: "user:ada", Policy: "daily", Limit: gcra.PerDay(2), Cost: 1},
	}

	for range 3 {
		allowed, err := store.Take(context.Background(), admission)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(allowed, admission[0].Result.Remaining, admission[1].Result.Remaining)
	}

	// Output:
	// true 9 1
	// true 8 0
	// false 8 0
}

// Taking from one window after the other charges the first for requests that the
// second denies: a client that keeps calling uses up "burst" with denied requests.
// Take both in one admission instead.
func ExampleStore_twoWindows_incorrect() {
	store := gcra.NewMemory()
	take := func(policy string, limit gcra.Limit) gcra.Result {
		result, err := gcra.Take(context.Background(), store, gcra.Charge{
			Subject: "user:ada", Policy: policy, Limit: limit, Cost: 1,
		})
		if err != nil {
			log.Fatal(err)
		}
		return result
	}

	for range 4 {
		burst := take("burst", gcra.PerMinute(10))
		daily := take("daily", gcra.PerDay(2))
		fmt.Println(burst.Allowed && daily.Allowed, burst.Remaining)
	}

	// Output:
	// true 9
	// true 8
	// false 7
	// false 6
}

func ExampleParseLimit() {
	for _, s := range []string{"100/minute", "25/5s burst 50", "100/fortnight"} {
		limit, err := gcra.ParseLimit(s)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(limit.Count, limit.Per, limit.Burst, limit)
	}
	// Output:
	// 100 1m0s 0 100/minute
	// 25 5s 50 25/5s burst 50
	// gcra: limit "100/fortnight": period is "fortnight"; want second, minute, hour, day or a duration such as 5s
}

// 100 a minute, of which at most 20 at once.
func ExampleLimit_WithBurst() {
	limit := gcra.PerMinute(100).WithBurst(20)
	fmt.Println(limit)

	result, err := gcra.Take(context.Background(), gcra.NewMemory(), gcra.Charge{Limit: limit, Cost: 21})
	fmt.Println(result.Allowed, result.Never, err)
	// Output:
	// 100/minute burst 20
	// false true <nil>
}

// A refund gives back the charge for work that was not done.
func ExampleStore_refund() {
	ctx, store := context.Background(), gcra.NewMemory()
	upload := []gcra.Charge{{Subject: "user:ada", Policy: "uploads", Limit: gcra.PerDay(10), Cost: 4}}
	if _, err := store.Take(ctx, upload); err != nil {
		log.Fatal(err)
	}
	fmt.Println(upload[0].Result.Remaining)

	if err := store.Refund(ctx, upload); err != nil {
		log.Fatal(err)
	}
	fmt.Println(upload[0].Result.Remaining)
	// Output:
	// 6
	// 10
}

// Support looks at what a customer has left, and fills the bucket.
func ExampleReset() {
	ctx, store := context.Background(), gcra.NewMemory()
	limit := gcra.PerDay(10)
	if _, err := gcra.Take(ctx, store, gcra.Charge{Subject: "user:ada", Policy: "uploads", Limit: limit, Cost: 10}); err != nil {
		log.Fatal(err)
	}
	before, err := gcra.Peek(ctx, store, gcra.Charge{Subject: "user:ada", Policy: "uploads", Limit: limit})
	if err != nil {
		log.Fatal(err)
	}

	if err := gcra.Reset(ctx, store, gcra.Charge{Subject: "user:ada", Policy: "uploads", Limit: limit}); err != nil {
		log.Fatal(err)
	}
	after, err := gcra.Peek(ctx, store, gcra.Charge{Subject: "user:ada", Policy: "uploads", Limit: limit})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(before.Remaining, after.Remaining)

	// Output: 0 10
}

// A quota is given back when the calendar says so; a rate spreads it. Both are charged
// together, or neither is.
func ExampleQuota() {
	now := time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC)
	store := gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})
	monthly := gcra.Quota(2, gcra.Monthly)
	for range 4 {
		charges := []gcra.Charge{
			{Subject: "user:1", Policy: "burst", Limit: gcra.PerSecond(10), Cost: 1},
			{Subject: "user:1", Policy: "monthly", Limit: monthly, Cost: 1},
		}

		allowed, err := store.Take(context.Background(), charges)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(allowed, charges[1].Result.Remaining, charges[1].Result.ResetAfter)
		now = now.Add(30 * time.Second)
	}
	fmt.Println(monthly)

	// Output:
	// true 1 1m0s
	// true 0 30s
	// true 1 744h0m0s
	// true 0 743h59m30s
	// 2/calendar month
}
