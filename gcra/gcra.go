// Package gcra decides whether a request may pass, by the generic cell rate
// algorithm (ITU-T I.371; ATM Forum TM 4.1), on state that many servers may
// share.
//
// # The algorithm
//
// Each key holds one number, its theoretical arrival time (TAT): the moment at
// which its bucket will be full again. With the emission interval T = Per/Count
// and a burst of B units, a charge of cost units at the time now is decided so:
//
//	t0  = clamp(tat, now, now + B·T + max(D, debt·T))
//	new = t0 + cost·T
//	allow when new - now <= B·T + W:  tat = new, delay = max(0, new - now - B·T)
//	deny otherwise:                   tat unchanged, retry after new - now - B·T - W
//
// D and debt are the longest delay and the largest debt that the limit grants, and W is how
// long the caller waits, at most D: see [Charge]. What a request has cost in the end may be
// taken late: that is never denied, and takes the units that fit into B·T + debt·T. Late
// charges and refunds clamp at now + B·T + 366 days, so only ordinary charges bring a TAT
// down.
//
// On a clock that does not go back and state that is not lost, any interval of length L
// therefore admits at most B + L/T units, and debt more if charges are late. The clamp
// bounds the effect of a clock that is set, a changed limit or a damaged value: none denies
// for longer than a bucket takes to refill, and a limit may be changed at any time.
//
// A denial writes nothing, so retrying does not extend it, with one exception: it
// brings a TAT beyond the clamp down to it, or the bucket would deny until the
// clock catches up. An admission of several charges takes all of them or none.
//
// # Quotas
//
// A [Quota] allows n units in each period of a [Calendar]. It takes the same step with
// T = 1 tick, B = n, and the end of the current period in place of now: the stored
// value is that end plus the units used. A value of an earlier period is before the end
// of this one, so the clamp makes it 0. A quota that is lowered forgets nothing.
//
// Which period is current is decided by the clock of the store. If that goes back into
// the period before, the one that has begun goes on. At most n units pass in a period,
// and 2n around the moment between two.
//
// # Stores
//
// A [Limit] says how much may pass, a [Charge] is one limit to take from, and a [Store]
// keeps the state. [Memory] is the store in this process; package redisstore is the one
// in Redis. Package turns, in outbound, takes turns on a limit.
//
// If a store cannot decide, for example because Redis does not answer in time, Take
// returns an error. What to do then is the caller's choice; package middleware has
// three (see its FailureMode).
package gcra

// limit.go and calendar.go have limits, store.go charges and stores, memory.go the store in
// this process. internal/tat has the arithmetic, internal/buckets the table of TATs.
