package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A request is an admission or a refund on its way to one server, which takes all
// of its ops or none. On a cluster it is for one subject. It has copies of
// the charges, so its caller may leave while it is in flight.
type request struct {
	ops      []op
	refund   bool
	node     *redis.Client // of several servers: that of the batcher, or nil if it is not known
	byClient bool          // the client finds the server, see way_node.go
	deadline int64         // by the store's clock: the request is answered by then, if only with an error
	at       int64         // the time of quotas, by the server's clock as far as it is known
	moved    int           // how often its keys were on two nodes
	again    bool          // asked for the second time, as the first answer was unfit

	// The answer, to be read after a receive from done.
	admitted bool
	unfit    bool // the server's time is in none of the periods that were sent: ask again
	learned  bool // at is the server's time
	err      error
	done     chan struct{} // gets one value
}

// An op is one charge of a request. Its Ahead is the answer: how far the TAT was
// ahead of now when the op's turn came.
type op struct {
	buckets.Charge
	key     string
	latency int64 // of the call by which the denial cache learned the TAT, or the clock
}

var requests = sync.Pool{New: func() any { return &request{done: make(chan struct{}, 1)} }}

// newRequest returns a request of copies of the ops.
func newRequest(ops []op, refund bool) *request {
	q := requests.Get().(*request)
	q.ops = append(q.ops[:0], ops...)
	*q = request{ops: q.ops, refund: refund, done: q.done}
	return q
}

// free gives the request to the next caller. Only a caller that has received from
// done may do so: until then its batcher holds it.
func (q *request) free() { requests.Put(q) }

func (q *request) finish() { q.done <- struct{}{} }

// fail answers a request with an error.
func (q *request) fail(err error) {
	q.err = &failure{err}
	q.finish()
}

// What take.lua says of quotas.
const (
	unfit = -1 << 52 // now is not in the periods that were sent
	begun = 1 << 50  // added to ahead: the clock has gone back since the period began
)

// periods are those that are sent with an op: around now or, of a refund that names one,
// this one alone.
func (q *request) periods(o *op) tat.Period {
	if o.Refunds == 0 {
		return o.Periods.At(q.at)
	}
	p := o.Periods.At(o.Refunds - 1)
	if p.End != o.Refunds {
		return tat.Period{} // there is no such period
	}
	return tat.Period{Before: p.Begin, Begin: p.End, End: p.End, Next: p.End}
}

// deliver sets the answer from the script's reply, which take.lua describes. now is the
// server's time if the script has quotas.
func (q *request) deliver(reply []int64, now int64) {
	q.admitted = reply[0] >= 0
	q.unfit = false
	for i := range q.ops {
		o := &q.ops[i]
		if o.Periods != nil {
			q.at, q.learned = now, true
		}
		if reply[i] == unfit {
			q.unfit = true
			if o.Refunds != 0 {
				o.Inc, o.Refunds = 0, 0 // its period is over; what is left is to see the state
			}
			continue
		}
		if o.Ahead = reply[i]; !q.admitted {
			o.Ahead = -reply[i] - 1
		}
		if o.Periods != nil {
			o.SetPeriod(now, o.Ahead >= begun)
			o.Ahead %= begun
		}
	}
}

// taken reports whether an op of the request was taken.
func (q *request) taken(o *op) bool { return q.admitted && o.Admits(o.Ahead) }

// before returns the nearest earlier op on the same bucket as op i, or -1.
func before(ops []op, i int) int {
	for j := i - 1; j >= 0; j-- {
		if ops[j].Hash == ops[i].Hash {
			return j
		}
	}
	return -1
}

// setResults fills in the results of the charges, one for each op, and the periods of
// quotas that were not refunded.
func setResults(charges []gcra.Charge, ops []op, admitted, refund bool) {
	for i := range charges {
		ops[i].Result(admitted, (*tat.Result)(&charges[i].Result))
		if ops[i].Periods != nil && !refund {
			charges[i].Period = tat.Time(ops[i].Period)
		}
	}
}

// wait returns when the request is answered, or with an error when the caller's
// context ends first. The request goes on then.
func (q *request) wait(ctx context.Context) error {
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("redisstore: %w", ctx.Err())
	}
}

// sentBefore reports whether the request has been sent and has come back without an answer.
func (q *request) sentBefore() bool { return q.byClient || q.moved > 0 || q.again }

// several reports whether the request is for several subjects.
func (q *request) several() bool {
	for i := range q.ops[1:] {
		if hashTag(q.ops[i+1].key) != hashTag(q.ops[0].key) {
			return true
		}
	}
	return false
}

// hashTag is a key up to the end of its hash tag: prefix and subject, which decide
// the slot on a cluster.
func hashTag(key string) string { return key[:strings.IndexByte(key, '}')] }
