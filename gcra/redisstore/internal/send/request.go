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

	node     *redis.Client // of several servers: that of the batcher, or nil if it is not known
	byClient bool          // a script of it has not run, so it goes another way; on a cluster the client finds the server
	deadline int64         // by the sender's clock: the request is answered by then, if only with an error
	at       int64         // the server's time, which says in which periods quotas are
	moved    int           // how often its keys were on two nodes
	again    bool          // asked for the second time, as the first answer was unfit

	// The answer.
	Admitted bool
	Err      error
	unfit    bool          // the server's time is in none of the periods that were sent: ask again
	done     chan struct{} // gets one value
}

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
func (q *Request) Answered() bool { return q.Err == nil && !q.unfit }

func (q *Request) finish() { q.done <- struct{}{} }

// fail answers a request with an error.
func (q *Request) fail(err error) {
	q.Err = &failure{err}
	q.finish()
}

// sentBefore reports whether the request has been sent and has come back without an answer.
func (q *Request) sentBefore() bool { return q.byClient || q.moved > 0 || q.again }

// maxCharges is the most charges of an admission: an op names its params and its periods by a byte.
const maxCharges = 256

// What take.lua says in place of how far a TAT is ahead:
const (
	unfit     = -1 << 52 // of a quota: now is not in the periods that were sent
	begun     = 1 << 50  // of a quota, added to ahead: the clock has gone back since the period began
	elsewhere = -1 << 53 // of several slots: the admission was not decided, as a key is or may be on another node
)

// periods are those that are sent with a charge: around now or, of a refund that names one, this one alone.
func (q *Request) periods(c *buckets.Charge) tat.Period {
	if c.Refunds == 0 {
		return c.Periods.At(q.at)
	}
	p := c.Periods.At(c.Refunds - 1)
	if p.End != c.Refunds {
		return tat.Period{} // there is no such period
	}
	return tat.Period{Before: p.Begin, Begin: p.End, End: p.End, Next: p.End}
}

// deliver sets the answer from the script's reply, which take.lua describes: a denied charge has -ahead-1. now is the
// server's time if the script has quotas.
func (q *Request) deliver(reply []int64, now int64) {
	q.Admitted = reply[0] >= 0
	q.unfit = false
	for i := range q.Charges {
		c := &q.Charges[i]
		if c.Periods != nil {
			q.at = now
		}

		if reply[i] == unfit {
			q.unfit = true
			if c.Refunds != 0 {
				c.Inc, c.Refunds = 0, 0 // the period it refunds is over: ask again, only for the state
			}
			continue
		}

		if c.Ahead = reply[i]; !q.Admitted {
			c.Ahead = -reply[i] - 1
		}
		if c.Periods != nil {
			c.SetPeriod(now, c.Ahead >= begun)
			c.Ahead %= begun
		}
	}
}

// failure is an error of a call to Redis.
type failure struct{ err error }

func (f *failure) Error() string { return "redisstore: " + rediskit.WithoutArgs(f.err.Error()) }

func (f *failure) Unwrap() error { return f.err }

// Logged implements [gcra.LoggedError].
func (f *failure) Logged() bool {
	return errors.Is(f.err, ErrUnavailable) || rediskit.Diagnose(f.err, rediskit.Conn{}).Code != ""
}
