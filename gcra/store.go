package gcra

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A Store keeps the state of every key and takes from it. It is safe for
// concurrent use. [Memory] is a store, package redisstore has one in Redis;
// package storetest has the contract as tests.
//
// A store that does not keep every valid limit also has a method
//
//	CheckLimit(l Limit) error
//
// that returns nil for a limit that it keeps, otherwise an error with the value and what would
// be right. Package middleware asks it before it charges.
type Store interface {
	// Take decides about one admission: all its charges are taken or none is, except for
	// shadows, late ones and peeks (see [Charge]). In Redis an admission may be divided: see
	// packages redisstore and slidinglog. It is allowed if every charge that is not a shadow
	// is. Charges are decided in order, and each sees what those before it would take, also if
	// the admission is denied in the end. Take fills in the Results. It returns an error when there is no decision, as when a
	// charge is not valid, the context is done, or the store could not answer. Then allowed is
	// false and the results mean nothing. Where a server was asked, the charges may have been
	// taken. Once Take has returned without an error it does not use the slice: the caller may use it
	// for another admission.
	Take(ctx context.Context, charges []Charge) (allowed bool, err error)

	// Refund gives back Cost units of the charges, at most to a full bucket; see [Reset] to
	// give back all of them. It gives back nothing of a Peek, of a quota whose Period is over,
	// or of the bucket that keys of a full [Memory] share. It fills in Result with the state
	// that [Peek] then returns. Limits and periods must be as in the Take. Refund at most the
	// units taken; for a late charge that is Result.Taken. Refund ignores Late, Shadow and Result.
	Refund(ctx context.Context, charges []Charge) error
}

// A LocalStore is a [Store] that also keeps, in this process, what its server has said about
// keys. While the store does not answer, policies of package middleware that fail local decide
// on its Local, from the last known state of a key if there is one. For other stores
// middleware makes a [Memory], which starts with full buckets. The store of package redisstore
// is a LocalStore.
//
// A store that wraps another by embedding the interface Store hides its Local, Stats and
// CheckLimit. One that changes the charges needs a Local of its own, which changes them too.
type LocalStore interface {
	Store

	// Local returns a store in this process, not nil, for the time in which the
	// server does not answer. Its Take gets the charges that the server would get. It
	// grants one server's share of a limit, where instances is the number of
	// servers that share the limit; 0 means as many as the store has counted.
	Local(instances int) Store
}

// MaxDelay is the longest Charge.MaxDelay: 366 days.
const MaxDelay = tat.MaxDelay

// Charge is one limit to take from. An admission is a slice of them.
//
// Subject and Policy together name the bucket; a quota's calendar is part of the name too, so
// a rate and a quota, or two calendars, do not share one. A
// charge is not valid, and Store.Take returns an error with nothing taken, when its Limit
// is not (see [Limit.Validate]), when a number or a duration is negative, when MaxDelay is
// longer than 366 days, or not 0 on a quota, and when Limit.Capacity and MaxDebt together
// take longer than 366 days to refill, or are more than the largest quota of the calendar.
//
// MaxDelay and MaxDebt are the limit's: all its callers must give the same, or a charge with
// less may erase the debt and the queue of the others.
//
// The fields up to Shadow say what to take, and the caller sets them; Result and Period are
// what Take fills in. They are one struct so that a Take allocates nothing, and so that a Refund
// can be given what Take returned.
type Charge struct {
	// What the caller sets.

	Subject string // who is counted: "ip:192.0.2.7"; any bytes, any length
	Policy  string // which limit: "login"
	Limit   Limit  // how much; may change from call to call, live keys follow
	Cost    int64  // units to take or to refund; 0 means 1

	MaxDelay time.Duration // longest delay that this limit grants; 0 means none
	MaxWait  time.Duration // longest delay that this caller accepts, at most MaxDelay; 0 means that it does not wait
	MaxDebt  int64         // units by which Late may overdraw the bucket; 0 means none

	// Late takes what a request has cost, once that is known. It is not denied and not
	// delayed: it takes Cost units, or as many as are left with MaxDebt, and Result.Taken
	// says how many; in an admission that is denied it takes none. A bucket in debt denies
	// ordinary charges, or lets them wait; the debt of a quota ends with its period.
	Late bool

	// Peek asks what is left: it is allowed, and takes and refunds nothing.
	Peek bool

	Shadow bool // taken if its own limit and all that are not shadows allow; never denies the admission

	// What Take fills in.

	Result Result // the decision; Refund fills it in too

	// Period is the end of the quota's period that Take has charged, or would have; zero for a
	// rate. Refund does nothing once this period is over, or it would add to the next one; with
	// the zero Period it refunds in the current one.
	Period time.Time
}

// Result is the decision of one limit about one charge.
type Result struct {
	Allowed    bool          // this limit allows; the admission passes if all limits but shadows do
	Never      bool          // the cost is above the burst: no wait helps
	Cached     bool          // the admission was denied by what this process knows already, without asking the store's server
	Taken      int64         // units that were taken: the cost, or fewer if Late; 0 if denied, of a Peek and of a Refund
	Remaining  int64         // whole units left after this call: a limit of 10 that has passed 6 leaves 4
	RetryAfter time.Duration // time until the same charge passes, not rounded to seconds, of a quota until its period ends; 0 when Allowed or Never
	ResetAfter time.Duration // how long until the bucket is full, of a quota until its period ends
	Delay      time.Duration // how long to delay an allowed request, at most MaxDelay
}

// single are admissions of one charge for Take: one on its stack would escape to the Store.
var single = sync.Pool{New: func() any { return new([1]Charge) }}

// Take is shorthand for an admission of one charge. It allocates nothing that the store does not.
func Take(ctx context.Context, s Store, c Charge) (Result, error) {
	charges := single.Get().(*[1]Charge)
	charges[0] = c
	_, err := s.Take(ctx, charges[:])
	result := charges[0].Result

	// A store that wraps another and did not wait for it may still have the charge after an error.
	if err == nil {
		single.Put(charges)
	}
	return result, err
}

// Peek returns the state of the charge's bucket and takes nothing: Remaining units are
// left, and all of them will be after ResetAfter. An unknown subject has a full bucket.
// Limit, MaxDelay and MaxDebt must be as when the bucket is charged. Peek leaves out
// what a server has granted alone (see [LocalStore]) and not charged yet, and the bucket
// that keys of a full [Memory] share.
func Peek(ctx context.Context, s Store, c Charge) (Result, error) {
	c.Peek = true
	return Take(ctx, s, c)
}

// Reset fills the charge's bucket, also one in debt. The limit must be as when the
// bucket is charged; Cost and Period do not matter. What a server has granted alone (see
// [LocalStore]) and not charged yet still counts, and so does the bucket that keys of a full
// [Memory] share. After an error Reset may be called again.
//
// In Redis the reset is for all stores; another one may deny from its cache for its
// DenialTTL, 1 s by default.
func Reset(ctx context.Context, s Store, c Charge) error {
	c.Cost, c.Peek, c.Period = math.MaxInt64, false, time.Time{}
	charges := [1]Charge{c}
	return s.Refund(ctx, charges[:])
}
