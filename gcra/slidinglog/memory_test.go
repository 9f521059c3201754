package slidinglog_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/slidinglog"
	"github.com/seed-e377111c/ratelimit/gcra/storetest"
)

// clock is a time that stands still until it is told.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(1_800_000_000, c.ns.Load()) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

func TestMemoryContract(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Backend {
		c := new(clock)
		return storetest.Backend{Store: &slidinglog.Memory{Now: c.now}, Advance: c.advance, Exact: true, Algorithm: storetest.Sliding}
	})
}
