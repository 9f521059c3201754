// Package slidinglog enforces strict windows: in any window of length Per, wherever
// it begins, at most Count units pass, while no state is lost, limits stay, the clock does not
// go back and nothing is refunded. [Store], in Redis, and [Memory] implement [gcra.Store] for
// rates without debt whose Burst is 0 or their Count.
//
//	store, err := slidinglog.New(client, slidinglog.Config{})
//	if err != nil {
//		return err
//	}
//	limit := gcra.Limit{Count: 25, Per: 5 * time.Second}
//	result, err := gcra.Take(ctx, store, gcra.Charge{Subject: "account", Policy: "partner", Limit: limit})
//
// # When to use it
//
// Use it for somebody else's limit: a partner counts 25 calls in any 5 seconds and
// bans clients that make the 26th. GCRA keeps such a limit if Burst + Count is at most
// 25. A log admits all 25, at once or spread, and the 26th when the first has left the
// window. For your own limits use GCRA, which refills evenly and costs less.
//
// A partner counts calls when they arrive, and some take longer than others. Let Per
// be longer than the partner's by as much as that varies, such as 1 %.
//
// # Algorithm
//
// If none waits, a charge of cost units passes at time t if the units logged after t - Per
// and its own are at most Count together. Then it is logged with t. A denied charge is not
// logged, so retries do not extend a denial.
//
// A charge that waits (see MaxDelay and MaxWait) is logged with the time at which it may
// pass, and later charges queue behind it. All charges on one log must have the same MaxDelay:
// a log that is further ahead is brought down. The charges of an admission wait together, so
// the smallest MaxWait of those that are no shadows, late charges or peeks counts for all of
// these; a shadow goes by its own.
//
// A late charge takes what is left of the window at most, and is not delayed.
//
// A refund removes the newest units, also where others have taken them since: then the
// window may hold fewer than have passed. So refund at once, or not at all if a partner may
// have counted the call.
//
// Charges on one subject and policy should agree on Per: a longer one begins with what a
// shorter one has kept.
//
// # Cost
//
// A key holds two integers for each charge, whatever its cost. Bytes of a key
// in Redis 7.0 (MEMORY USAGE with SAMPLES 0), by charges in the window:
//
//	charges       1     10     100    1,000    10,000
//	bytes       184    312   1,432   13,504   138,008
//
// A key of GCRA takes 72 with subject and policy of the same length.
//
// There is no batching, denial cache or breaker. If a redis.Client has
// ContextTimeoutEnabled, its hooks must return when their context ends.
// benchmarks/RESULTS.md compares the time of a check with GCRA and a plain SET. To measure it:
//
//	go -C benchmarks test -run '^$' -bench 'Lone|Window|KeyMemory'
package slidinglog

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Where to change what: memory.go is the algorithm in Go, take.lua and refund.lua the same in Lua;
// log.lua describes the log. redis.go calls the scripts through script.go, and through split.go for
// several subjects on a cluster.

// params are the parameters of a valid charge.
type params struct {
	per      time.Duration
	count    int64
	cost     int64         // 0 peeks; at most count+1, which never passes
	wait     time.Duration // the longest delay of the admission
	maxDelay time.Duration
	late     bool // takes what is left at most
	shadow   bool
}

// maxRefund is more units than any log holds, and exact in Lua.
const maxRefund = 1 << 52

// paramsOf validates the charges of an admission or a refund.
func paramsOf(ctx context.Context, charges []gcra.Charge, refund bool) ([]params, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	ps := make([]params, len(charges))
	wait := gcra.MaxDelay
	for i := range charges {
		c := &charges[i]
		if err := validate(c); err != nil {
			return nil, fmt.Errorf("slidinglog: charge on policy %.80q: %w", c.Policy, err)
		}
		p := params{
			per: c.Limit.Per, count: c.Limit.Count, wait: min(c.MaxWait, c.MaxDelay), maxDelay: c.MaxDelay,
			late: c.Late && !refund, shadow: c.Shadow,
		}

		switch cost := max(c.Cost, 1); {
		case c.Peek:
		case refund:
			p.cost = min(cost, maxRefund) // which includes units in the queue
		case p.late:
			p.cost = min(cost, p.count)
		default:
			p.cost = min(cost, p.count+1)
		}

		if p.cost > 0 && !p.shadow && !p.late {
			wait = min(wait, p.wait)
		}
		ps[i] = p
	}

	for i := range ps {
		if !ps[i].shadow {
			ps[i].wait = wait
		}
	}
	return ps, nil
}

// checkLimit is CheckLimit of both stores.
func checkLimit(l gcra.Limit) error {
	switch {
	case l.IsQuota():
		return fmt.Errorf("limit is %v; want a rate such as 25/5s: a log of every call has windows, and no quotas by calendar", l)
	case l.Burst != 0 && l.Burst != l.Count:
		return fmt.Errorf("burst is %d; want 0 or %d, the count: in a strict window all of it may pass at once", l.Burst, l.Count)
	}
	return l.Validate()
}

// CheckLimit says why the stores cannot keep a limit: a log has neither quotas nor a burst that
// differs from the count.
func (r *Store) CheckLimit(l gcra.Limit) error { return checkLimit(l) }

// CheckLimit is [Store.CheckLimit].
func (m *Memory) CheckLimit(l gcra.Limit) error { return checkLimit(l) }

func validate(c *gcra.Charge) error {
	if err := checkLimit(c.Limit); err != nil {
		return err
	}
	switch {
	case c.MaxDelay < 0 || c.MaxDelay > gcra.MaxDelay:
		return fmt.Errorf("MaxDelay is %v; want 0 to 366 days", c.MaxDelay)
	case c.MaxDebt != 0:
		return fmt.Errorf("MaxDebt is %d; want 0: in a strict window no more than %d may pass", c.MaxDebt, c.Limit.Count)
	case c.Cost < 0:
		return fmt.Errorf("cost is %d; want 1 or more, or 0 (1)", c.Cost)
	case c.MaxWait < 0:
		return fmt.Errorf("MaxWait is %v; want 0 (does not wait) or more", c.MaxWait)
	}
	return nil
}
