package send

import (
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// A Request is an admission or a refund on its way to one server, which takes all of its charges or none. On a cluster it
// is for one subject. The charges are copies, so its caller may leave while it is in flight.
type Request struct {
	Charges []buckets.Charge // the answer is their Ahead: how far the TAT was ahead of now when the charge's turn came
	Keys    []string         // of the charges
	Refund  bool

	node     *redis.Client // of several servers: the batcher's, or nil if it is not known
	deadline int64         // by the sender's clock: the request is answered by then, if only with an error
	at       int64         // the server's time, which says in which periods quotas are

	// What came of the calls so far. The last is the answer.
	outcome  outcome
	Admitted bool
	Err      error
	asked    bool // again, after askAgain
	byClient bool // after otherWay: on a cluster the client finds the server
	moved    int  // how often it was slotMoves

	done chan struct{} // gets one value when the request has its answer
}

// An outcome is what came of a request in a call. [script.deliver] sets it, and batcher.answer acts on it.
type outcome uint8

const (
	failed    outcome = iota // Err says why; the request may have been charged
	answered                 // Admitted and the charges have the answer
	askAgain                 // a quota: the server's time is in none of the periods that were sent
	otherWay                 // nothing of it has run: it is sent in another way
	slotMoves                // nothing of it has run, as its keys are on two nodes for a moment
)

var requests = sync.Pool{New: func() any { return &Request{done: make(chan struct{}, 1)} }}

// NewRequest returns a request of copies of the charges, without their keys.
func NewRequest(charges []buckets.Charge, refund bool) *Request {
	q := requests.Get().(*Request)
	*q = Request{Charges: append(q.Charges[:0], charges...), Keys: q.Keys[:0], Refund: refund, done: q.done}
	return q
}

// Free gives the request to the next caller.
func (q *Request) Free() { requests.Put(q) }

// Answered reports whether the charges have the answer of a server. It is not asked of a request that was split.
func (q *Request) Answered() bool { return q.outcome == answered }

func (q *Request) finish() { q.done <- struct{}{} }

// fail answers a request with an error.
func (q *Request) fail(err error) {
	q.outcome, q.Err = failed, &failure{err}
	q.finish()
}

// sentBefore reports whether the request has been sent and has come back without an answer.
func (q *Request) sentBefore() bool { return q.byClient || q.moved > 0 || q.asked }

// maxCharges is the most charges of an admission: an op names its params and its periods by a byte.
const maxCharges = 256

// periods are those that are sent with a charge: around now or, of a refund that names one, this one alone.
func (q *Request) periods(c *buckets.Charge) tat.Period {
	if c.Refunds == 0 {
		return c.Periods.At(q.at)
	}
	p := c.Periods.At(c.Refunds - 1)
	if p.End != c.Refunds {
		return tat.Period{} // there is no such period
	}
	// None follows: when this one is over, the script must not find the next.
	return tat.Period{Before: p.Begin, Begin: p.End, End: p.End, Next: p.End}
}

// deliver sets what came of the request from the reply to a script of a form, a number for each charge. now is the server's
// time if the script has quotas.
func (q *Request) deliver(form *Script, reply []int64, now int64) {
	q.outcome, q.Admitted = answered, reply[0] >= 0
	for i := range q.Charges {
		c := &q.Charges[i]
		if c.Periods != nil {
			q.at = now
		}

		number := decode(reply[i], form == severalSlots, c.Periods != nil)
		switch number.outcome {
		case otherWay:
			q.outcome = otherWay
		case askAgain:
			q.outcome = askAgain
			if c.Refunds != 0 {
				c.Inc, c.Refunds = 0, 0 // the period it refunds is over: ask again, only for the state
			}
		default:
			c.Ahead = number.ahead
			if c.Periods != nil {
				c.SetPeriod(now, number.begun)
			}
		}
	}
}

// A number is one of take.lua's reply.
type number struct {
	outcome outcome // answered, askAgain or otherWay
	ahead   int64   // how far the TAT was ahead of now when the charge's turn came
	begun   bool    // of a quota: the clock has gone back since the period began
}

// decode is the counterpart of what take.lua says of its reply: several things in one number, as a list of two for each
// charge would cost a single check as much as its SET.
func decode(n int64, slots, quota bool) number {
	const (
		elsewhere = -1 << 53 // only of several slots
		unfit     = -1 << 52
		begun     = 1 << 50 // added, only of a quota
	)

	if n == elsewhere && slots {
		return number{outcome: otherWay}
	} else if n == unfit {
		return number{outcome: askAgain}
	}

	if n < 0 {
		n = -n - 1 // denied
	}
	if quota {
		return number{answered, n % begun, n >= begun}
	}
	return number{answered, n, false}
}

// failure is an error of a call to Redis.
type failure struct{ err error }

func (f *failure) Error() string { return "redisstore: " + rediskit.WithoutArgs(f.err.Error()) }

func (f *failure) Unwrap() error { return f.err }

// Logged implements iface.LoggedError.
func (f *failure) Logged() bool {
	return errors.Is(f.err, ErrUnavailable) || rediskit.Diagnose(f.err, rediskit.Conn{}).Code != ""
}
