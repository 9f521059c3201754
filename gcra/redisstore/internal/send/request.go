package send

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// A Request is an admission or a refund on its way: all of its charges are made or none. The charges are copies, so its caller
// may leave while it is in flight.
type Request struct {
	Charges []buckets.Charge // the answer is their Ahead: how far the TAT was ahead of now when the charge's turn came
	Keys    []string         // of the charges
	Refund  bool

	deadline int64 // by the sender's clock: the request is answered by then, if only with an error
	at       int64 // the server's time, at first an estimate, which says in which periods quotas are
	trips    int   // that it has made

	// What came of the last trip.
	Admitted bool
	Err      error // why there is no answer; a request that was sent may have been charged, unless notRun
	notRun   bool  // nothing of it has run: it is sent again while it has time

	done chan struct{} // gets one value when the request has its answer
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

func (q *Request) finish() { q.done <- struct{}{} }

// fail answers a request with an error.
func (q *Request) fail(err error) {
	q.Err = &failure{err}
	q.finish()
}

// precedes reports whether the request goes before another one that waits: it has made more trips, or has less time.
func (q *Request) precedes(other *Request) bool {
	return q.trips > other.trips || q.trips == other.trips && q.deadline < other.deadline
}

// several reports whether the keys are of several groups.
func (q *Request) several(k redisstats.Kind) bool {
	return slices.ContainsFunc(q.Keys[1:], func(key string) bool { return groupOf(k, key) != groupOf(k, q.Keys[0]) })
}

// groupOf names the group of a key on a server of a kind: the keys of one group may be in one run.
func groupOf(k redisstats.Kind, key string) string {
	switch k {
	case redisstats.OneKeyspace, redisstats.ByNode, redisstats.Unusable: // the last gets none
		return ""
	}
	return tagOf(key)
}

// tagOf is a key up to the end of its hash tag: prefix and subject, which decide the slot on a cluster.
func tagOf(key string) string { return key[:strings.IndexByte(key, '}')] }

// maxCharges is the most charges of an admission, and of a batch, which never holds Redis up for long: an op names its params
// and its periods by a byte.
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

// read reads what came of the request from its numbers in the reply of take.lua. Each says several things, as a list of two
// for each charge would cost a single check as much as its SET. now is the server's time if the run has quotas.
func (q *Request) read(reply []int64, now int64) {
	const (
		elsewhere = -1 << 53 // another node has a key of the admission
		unfit     = -1 << 52 // the server's time is in none of the periods that were sent
		begun     = 1 << 50  // added for a quota: the clock has gone back since the period began
	)

	q.Admitted, q.Err, q.notRun = reply[0] >= 0, nil, false
	for i := range q.Charges {
		c, ahead := &q.Charges[i], reply[i]
		if c.Periods != nil {
			q.at = now
		}

		switch {
		case ahead == elsewhere:
			q.Err, q.notRun = &failure{errors.New("another node has a key")}, true
			continue
		case ahead == unfit:
			q.Err = &failure{errors.New("the server's clock has moved by more than a period between two calls")}
			// A clock that jumps again and again would have it asked until its time is up.
			q.notRun = q.trips <= 2
			if c.Refunds != 0 {
				c.Inc, c.Refunds = 0, 0 // the period it refunds is over: ask again, only for the state
			}
			continue
		case ahead < 0: // denied
			ahead = -ahead - 1
		}

		if c.Periods != nil {
			c.SetPeriod(now, ahead >= begun)
			ahead %= begun
		}
		c.Ahead = ahead
	}
}

// failure is an error of a call to Redis.
type failure struct{ err error }

func (f *failure) Error() string { return "redisstore: " + rediskit.WithoutArgs(f.err.Error()) }

func (f *failure) Unwrap() error { return f.err }

// Logged implements iface.LoggedError.
func (f *failure) Logged() bool {
	return errors.Is(f.err, ErrUnavailable) || rediskit.Diagnose(f.err, rediskit.Conn{}).Code != ""
}
