package main

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/storetest"
)

// fixedWindow keeps the parts of the contract that do not depend on the algorithm.
func TestFixedWindow(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Backend {
		now := time.Unix(1_800_000_000, 0)
		f := &fixedWindow{now: func() time.Time { return now }}
		return storetest.Backend{Store: f, Advance: func(d time.Duration) { now = now.Add(d) }, Exact: true, Algorithm: storetest.Other}
	})
}
