// Package gcra decides whether a request may pass, by the generic cell rate
// algorithm (ITU-T I.371; ATM Forum TM 4.1), on state that many servers may
// share.
//
//	result, err := gcra.Take(ctx, gcra.NewMemory(), gcra.Charge{
//		Subject: "user:ada", Policy: "burst", Limit: gcra.PerSecond(10),
//	})
//	switch {
//	case err != nil: // the store could not decide
//	case !result.Allowed: // deny, until result.RetryAfter has passed
//	}
//
// A [Limit] says how much may pass: a rate with a burst, or a [Quota] by calendar. A [Charge]
// takes units from one limit of one subject. A [Store] keeps the state and decides about one
// charge or several together. [Memory] is one in this process; package redisstore has one that
// servers share.
//
// # What is promised
//
// While a limit is not changed, the clock is not set, no state is lost and a [Memory] is not full,
// any interval of length D admits at most B + D/T units of a subject's limit, where B is its
// [Limit.Capacity] and T its [Limit.Interval], and a period of a quota at most its count. Late
// charges may take as many units more as their debt allows, and units that are given back may
// pass again. A charge that is delayed counts when its own Result.Delay is over.
// A charge that is denied takes nothing, so retries do not extend the denial.
//
// If a store cannot decide, for example because Redis does not answer in time, Take returns an
// error.
//
// # The algorithm
//
// The key of a rate holds one number, its theoretical arrival time (TAT): the moment
// at which its bucket will be full again. With T, the [Limit.Interval], and a burst
// of B units, a charge of cost units at the time now is decided so:
//
//	t0  = clamp(tat, now, now + B·T + max(D, debt·T))
//	new = t0 + cost·T
//	allow when new - now <= B·T + W:  tat = new, delay = max(0, new - now - B·T)
//	deny otherwise:                   tat unchanged, retry after new - now - B·T - W
//
// D and debt are the longest delay and the largest debt that the limit grants, and W is how
// long the caller waits, at most D: see [Charge]. A cost above B never passes. A late charge
// takes as many units of its cost as fit into B·T + debt·T. Late charges and refunds clamp at
// now + B·T + 366 days.
//
// The clamp bounds the effect of a clock that is set, a changed limit or a damaged value: on a
// rate none denies for longer than B·T + max(D, debt·T). A denial of a cost up to B brings a TAT
// beyond the clamp down to it, and otherwise writes nothing. A peek shows such a TAT as the clamp
// and writes nothing, nor does a cost above B.
//
// # Quotas
//
// A [Quota] takes the same step with T = 1 tick, B = n, the largest quota of the calendar as
// the clamp, and the end of the current period in place of now: the stored value is that end
// plus the units used. A value of an earlier period is before the end of this one, so the clamp
// makes it 0.
//
// The clock of the store decides which period is current. If it steps back by less than one
// period, a bucket keeps the later period.
package gcra

// Where to change what: limit.go and calendar.go have the limits, store.go the contract of stores,
// memory.go the store in this process. internal/tat has the arithmetic and, as rows, the calendars,
// of which no script knows; internal/buckets has the table of TATs.
