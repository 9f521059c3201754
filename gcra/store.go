package gcra

import (
	"context"
	"math"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A Store keeps the state of every key and takes from it. It is safe for
// concurrent use. [Memory] is a store, package redisstore has the one in Redis;
// package storetest is the contract that every store passes. Package middleware logs
// the errors of a store, except those with a method Logged() bool that returns true:
// these the store logs by itself.
type Store interface {
	// Take decides about one admission: all its charges are taken or none is. It
	// is allowed if every charge that is not a shadow is. Take fills in the Result
	// of every charge, and returns an error only when there is no decision: a
	// charge is not valid (see [Charge]), the context is done, or the store could
	// not answer. After an error allowed is false and the results mean nothing.
	// Nothing was taken, unless an answer of a server was lost.
	Take(ctx context.Context, charges []Charge) (allowed bool, err error)

	// Refund gives back Cost units of every charge, never more than a full bucket;
	// see [Reset] to give back all of them. It fills in Result with the state that
	// follows. Limits, costs and periods must be those of the Take, and all charges
	// must have been taken: Refund ignores Shadow and Result.
	Refund(ctx context.Context, charges []Charge) error
}

// A LocalStore is a [Store] that also keeps, in this process, what its server has
// said about each key. Package middleware calls Local once for each limiter.
// Policies that fail local decide on the result while the store does not answer:
// they start from the last known state of each key, so an outage gives no client
// a fresh burst. For other stores middleware makes a [Memory], which starts with
// full buckets. The store of package redisstore is a LocalStore.
//
// A store that wraps a LocalStore needs a Local method of its own: one that
// embeds the interface Store does not have it.
type LocalStore interface {
	Store

	// Local returns a store in this process, never nil, for the time in which the
	// server does not answer. Charges are those that the server would get. Of each
	// limit the store grants one server's share, where instances is the number of
	// servers that share the limit; 0 means as many as the store has counted.
	// Remaining is what the share lets pass.
	Local(instances int) Store
}

// MaxDelay is the longest Charge.MaxDelay: 366 days.
const MaxDelay = tat.MaxDelay

// Charge is one limit to take from. An admission is a slice of them; a Store
// fills in Result, so that a decision need not allocate.
//
// Subject and Policy together name the bucket; that of a quota is also named by its
// calendar, so no other limit reads its value. A charge is not valid, and
// Store.Take returns an error with nothing taken, when its Limit is not (see
// [Limit.Validate]) or Cost, MaxDelay or MaxWait is negative or MaxDelay is
// longer than [MaxDelay], or not 0 on a quota.
type Charge struct {
	Subject  string        // who is counted: "ip:192.0.2.7"; any bytes, any length
	Policy   string        // which limit: "login"
	Limit    Limit         // how much; may change from call to call, live keys follow
	Cost     int64         // units to take; 0 peeks: never denied, writes nothing
	MaxDelay time.Duration // longest delay that this limit grants; the same for all its callers
	MaxWait  time.Duration // longest delay that this caller accepts, at most MaxDelay; 0 means MaxDelay
	Shadow   bool          // taken if its own limit and all that are not shadows allow; never denies the admission
	Result   Result        // filled by the Store

	// Period is the end of a quota's period. Take fills in that of the period it has
	// charged. Refund does nothing once this period is over, or it would add to the
	// next one; with the zero Period it refunds in the current one.
	Period time.Time
}

// Result is the decision of one limit about one charge.
type Result struct {
	Allowed    bool          // this limit allows; the admission passes if all limits but shadows do
	Never      bool          // the cost is above the burst: no wait helps
	Remaining  int64         // whole units left after this call: a limit of 10 that has passed 6 leaves 4
	RetryAfter time.Duration // exact time until the same charge passes, of a quota until its period ends; 0 when Allowed or Never
	ResetAfter time.Duration // how long until the bucket is full, of a quota until its period ends
	Delay      time.Duration // how long to delay an allowed request, at most MaxDelay
}

// Take is shorthand for an admission of one charge.
func Take(ctx context.Context, s Store, c Charge) (Result, error) {
	charges := [1]Charge{c}
	_, err := s.Take(ctx, charges[:])
	return charges[0].Result, err
}

// Peek returns the state of a bucket and changes nothing: Remaining units are
// left, and it is full in ResetAfter. Allowed is always true. An unknown subject
// has a full bucket. The limit must be the one that the bucket is charged by.
// ResetAfter is no longer than an empty bucket takes to refill; to include the
// queue of a policy with MaxDelay, Take a charge of Cost 0 with that MaxDelay.
// Errors are those of Store.Take.
func Peek(ctx context.Context, s Store, subject, policy string, limit Limit) (Result, error) {
	return Take(ctx, s, Charge{Subject: subject, Policy: policy, Limit: limit})
}

// Reset fills a bucket, however far it is in debt: the next Limit.Capacity units
// pass at once. Requests that MaxDelay delays keep their delay, so these units
// may pass together with them. The limit must be the one that the
// bucket is charged by. Errors are those of Store.Refund; after one of the
// network, whether the bucket was filled is unknown, and Reset may be called
// again.
//
// In Redis the reset is for all processes, and this one sees it at once. Another
// process that has cached a denial of the bucket goes on denying for its
// DenialTTL at most, 1 s by default.
func Reset(ctx context.Context, s Store, subject, policy string, limit Limit) error {
	// MaxDelay does not matter: the clamp leaves at most B·T + MaxDelay, and this
	// refunds all of that.
	charges := [1]Charge{{Subject: subject, Policy: policy, Limit: limit, Cost: math.MaxInt64}}
	return s.Refund(ctx, charges[:])
}

// A LimitChecker is a [Store] that does not keep every valid limit. Package middleware
// asks it about the limits of all policies before it uses them.
type LimitChecker interface {
	Store

	// CheckLimit returns nil for a limit that the store keeps, otherwise an error
	// with the value and what would be right.
	CheckLimit(l Limit) error
}
