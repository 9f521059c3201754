// Package slidinglog keeps limits over strict windows: in any window of length
// Per, wherever it begins, never more than Count units. [Redis] and [Memory]
// are stores as those of package gcra, with the same charges, results and keys,
// and take their place wherever a [gcra.Store] is asked for.
//
// # When to prefer it
//
// Use it against somebody else's limit: a partner who counts 25 calls in any
// 5 seconds and bars who makes the 26th. GCRA admits up to Burst + Count in the
// worst window (see [gcra.Limit]); to keep below 25 it would have to run at half
// the rate or without a burst. A log admits all 25, at once or spread, and the
// 26th when the first has left the window. For limits of one's own, GCRA is
// the better choice: it forgives evenly instead of all at once, and costs less.
//
// # The law
//
// A charge of cost units passes at the time t when the units logged after
// t - Per and its own are at most Count together; then it is logged with t. A
// refused charge is not logged, so that hammering does not extend a refusal. The
// window is half open: Count units at t leave room for as many at t + Per, and
// not a microsecond earlier.
//
// Because a whole Count may pass at once, Burst must be 0 or equal to Count.
//
// A charge with MaxDelay waits its turn: it is logged with the time at which it
// may pass, and charges that come later do not overtake it. All charges on one
// log must have the same MaxDelay; what is logged further ahead than that is
// taken for the trace of a clock that has gone back, and brought down. The
// charges of an admission are logged with one time, which is when its request
// is made, and so it is as patient as the least patient of them.
//
// A refund cannot know which units are its own. It removes the newest, so that
// others taken since count from as early as those refunded: a refund long after
// its Take, on a log that others use, lets that much time pass for
// less. Refund at once, or not at all, what a partner may have counted.
//
// A limit may change while its log lives. A new Count is obeyed at once; a
// longer Per begins with what the shorter one still knew. Charges on one subject
// and policy should agree on Per.
//
// # What it costs
//
// A key holds its window, a member for each charge (one, whatever its cost):
// with 1, 10, 100 and 1000 of them 104, 296, 2,120 and 118,000 bytes in Redis
// 7.0, where GCRA takes 72 whatever has passed. The step beyond 128 members is
// Redis's own (zset-max-listpack-entries).
//
// A check is six short commands in a script, where GCRA has three, and travels
// alone: there is no group commit, no mirror of refusals and no breaker. What
// that costs beside GCRA and a plain SET is in benchmarks/RESULTS.md (one caller
// there: 1.71 times a SET; other sorted-set logs in Go report 1.63). Measure it here with
//
//	go test -run '^$' -bench . ./gcra/slidinglog
//	go -C benchmarks run .
package slidinglog

import (
	"fmt"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// demand is a charge, checked: all that a log needs to know of it.
type demand struct {
	per    time.Duration
	count  int64
	cost   int64         // at most count+1, which never passes
	within time.Duration // how long the admission may be held back at most
	top    time.Duration // MaxDelay
	shadow bool
}

// maxDelay is the longest MaxDelay, as in package gcra.
const maxDelay = 366 * 24 * time.Hour

// maxGiveBack is more units than any log holds, and exact in Lua.
const maxGiveBack = 1 << 52

// demands checks the charges of an admission, or of a refund, and converts them.
func demands(charges []gcra.Charge, refund bool) ([]demand, error) {
	ds := make([]demand, len(charges))
	patience := maxDelay
	for i := range charges {
		c := &charges[i]
		if err := check(c); err != nil {
			return nil, fmt.Errorf("slidinglog: charge on policy %.80q: %w", c.Policy, err)
		}
		most := c.Limit.Count + 1 // is refused like any that is more
		if refund {
			most = maxGiveBack // a queue goes with the window
		}
		d := demand{per: c.Limit.Per, count: c.Limit.Count, cost: min(c.Cost, most), within: c.MaxDelay, top: c.MaxDelay, shadow: c.Shadow}
		if c.MaxWait > 0 {
			d.within = min(c.MaxWait, c.MaxDelay)
		}
		if d.cost > 0 && !d.shadow {
			patience = min(patience, d.within)
		}
		ds[i] = d
	}
	for i := range ds {
		if !ds[i].shadow {
			ds[i].within = patience
		}
	}
	return ds, nil
}

func check(c *gcra.Charge) error {
	if err := c.Limit.Validate(); err != nil {
		return err
	}
	switch {
	case c.Limit.Burst != 0 && c.Limit.Burst != c.Limit.Count:
		return fmt.Errorf("burst is %d; want 0 or %d, the count: all of a strict window may pass at once", c.Limit.Burst, c.Limit.Count)
	case c.Cost < 0:
		return fmt.Errorf("cost is %d; want 0 or more", c.Cost)
	case c.MaxDelay < 0 || c.MaxDelay > maxDelay:
		return fmt.Errorf("MaxDelay is %v; want 0 to 366 days", c.MaxDelay)
	case c.MaxWait < 0:
		return fmt.Errorf("MaxWait is %v; want 0 (as long as MaxDelay) or more", c.MaxWait)
	}
	return nil
}
