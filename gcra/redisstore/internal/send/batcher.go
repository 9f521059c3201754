package send

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/kind"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// A batcher sends requests to one server, many in one call (group commit).
//
//  1. While fewer than maxInFlight batches are in flight, a request is sent at once. Otherwise it waits, and goes with all
//     that wait as soon as one is answered: the busier the server, the larger the batches and the cheaper a request. No
//     timer holds a batch back.
//  2. inFlight is the number of senders: the goroutines of sendLoop, and a caller in sendInline. Each has one batch.
//     A request that is sent again starts one more, beyond maxInFlight if need be. A sender leaves when it finds none
//     waiting, so an idle batcher has none. A call whose time is up does not count, though the client still waits.
//  3. A request belongs to the batcher from submit until it is finished. Then its caller may free it, so nothing of it is
//     read any more. One that is asked again, or sent in another way, stays with the batcher.
//  4. For each call that is made, each of its requests goes to Config.Before once and to Config.Learn once.
type batcher struct {
	Server  string
	sender  *Sender
	breaker *breaker

	deadline atomic.Int64 // of the last request: Stats leaves out batchers that were not used since

	mu       sync.Mutex
	waiting  []*Request // in the order of their deadlines, behind those that were sent before
	inFlight int

	// What the server has shown of itself: a single one or a shard, or a node of a cluster.
	single   kind.State
	crossing kind.Crossing
}

// maxInFlight is how many batches of a batcher may be in flight: while Redis works on one, the next is being written and
// the one before read.
const maxInFlight = 2

// submit gives a request to a sender, or answers it at once while the breaker is open. It does not block. With inline the
// caller may be the sender: if no batch is in flight, it sends one, which usually has the request, and submit returns when
// that is over.
func (b *batcher) submit(q *Request, inline bool) {
	b.deadline.Store(q.deadline)

	b.mu.Lock()
	if b.breaker.denies(b.inFlight) {
		b.mu.Unlock()
		q.fail(ErrUnavailable)
		return
	}

	idle := b.inFlight == 0
	send := b.inFlight < maxInFlight
	if q.sentBefore() {
		// Its deadline may be earlier than those of the batches in flight, so it waits for none of them.
		b.waiting, send = slices.Insert(b.waiting, 0, q), true
	} else {
		// From the end: nearly always the new request has the latest deadline.
		i := len(b.waiting)
		for i > 0 && b.waiting[i-1].deadline > q.deadline && !b.waiting[i-1].sentBefore() {
			i--
		}
		b.waiting = slices.Insert(b.waiting, i, q)
	}
	// Before the sender starts: a caller that comes next must see its place taken.
	if send {
		b.inFlight++
	}
	b.mu.Unlock()

	switch {
	case send && idle && inline:
		b.sendInline()
	case send:
		go b.sendLoop()
	}
}

// sendLoop sends batches until no request waits.
func (b *batcher) sendLoop() {
	batch := getBatch()
	for {
		// Let callers submit that are about to. With few callers, this is what fills a batch.
		runtime.Gosched()
		if !b.fill(batch) {
			return
		}
		b.call(batch)

		// Let the callers that have their answers run and submit again: the yield above may come on another thread than
		// the one they wait for.
		runtime.Gosched()
	}
}

// sendInline sends one batch in the goroutine of a caller: on a busy machine, a switch to another goroutine costs a lone
// request as much as its round trip. The client must return when the context ends.
func (b *batcher) sendInline() {
	batch := getBatch()
	if b.fill(batch) {
		b.call(batch)
		b.leave(batch)
	}
}

// fill moves waiting requests into the batch, which is new or over. Those whose time is up are answered with an error
// instead, and those of several subjects are split if they would be sent by subject. It reports false if the batch stays
// empty or was late: then the sender has lost its place, and the batch is not its own any more.
func (b *batcher) fill(batch *batch) bool {
	if batch.late {
		return false
	}
	batch.reset()

	b.mu.Lock()
	defer b.mu.Unlock()

	n := 0
	if len(b.waiting) > 0 {
		now := b.sender.Clock.Now()
		for _, q := range b.waiting {
			// Chosen now, not in submit: the server may have shown its kind since.
			w := b.way(q, now)
			if now >= q.deadline {
				q.fail(rediskit.NoAnswer(b.sender.Timeout))
			} else if w == bySubject && q.several() {
				// Its parts may come back to this batcher, whose lock is held.
				go b.sender.split(q)
			} else if !batch.add(q, w) {
				break
			}
			n++
		}

		if batch.n > 0 {
			batch.batcher, batch.client, batch.probe, batch.sent = b, b.sender.clientOf(batch.node), b.newProbe(now), now
			if batch.several {
				batch.client = batch.node // keys that are not declared tell the client no slot
			}
		}
	}

	b.waiting = slices.Delete(b.waiting, 0, n)
	if batch.n == 0 {
		b.inFlight--
		batches.Put(batch)
		return false
	}
	return true
}

// call sends the batch and answers its requests. If the server has not answered by the first deadline, all get an error at
// once, see expire; call returns after the client has.
func (b *batcher) call(batch *batch) {
	if !b.begin(batch) {
		return
	}

	ctx := &callContext{context.Background(), b.sender.Clock.Time(batch.deadline), nil}
	// A client that heeds contexts returns when the batch is late, and with it the caller that sends.
	if b.sender.inline {
		ctx.done = batch.expired
	}
	batch.write()
	batch.timer.Reset(tat.Duration(batch.deadline - batch.sent))
	batch.send(ctx)
	if batch.late = !batch.timer.Stop(); !batch.late {
		b.end(batch, batch.deliver())
	}
}

// expire answers the requests of a batch that is late, and ends its sender, although the client may still wait.
func (b *batch) expire() {
	close(b.expired)
	err := rediskit.NoAnswer(b.batcher.sender.Timeout)
	for q := range b.requests() {
		q.outcome, q.Err = failed, &failure{err}
	}
	b.batcher.end(b, err)
	// The client may hang for long, so the place is used without it.
	b.batcher.giveUp()
}

// begin asks the breaker, and tells Before of the requests. While the breaker is open it answers them and reports false.
func (b *batcher) begin(batch *batch) (ok bool) {
	var err error
	batch.done, err = b.breaker.allow()
	for q := range batch.requests() {
		if err == nil {
			b.sender.Before(q)
		} else {
			q.fail(err)
		}
	}
	return err == nil
}

// end answers the requests of a batch, each of which has its answer or its error.
func (b *batcher) end(batch *batch, err error) {
	now := b.sender.Clock.Now()
	result := Result{Server: b.Server, Requests: batch.size, Takes: batch.takes, Sent: batch.sent, Took: now - batch.sent, Err: err}

	// A caller that is answered may call again at once, and is to find what was learned.
	b.breaker.count(batch.done, err, batch.sent, now)
	b.sender.learnTopology(err)
	if err != nil {
		b.note(result)
	}

	for q := range batch.requests() {
		b.sender.Learn(q, batch.sent, now)
		b.answer(batch, q)
	}
	b.learn(batch, err, now) // what has not run waits again, for the sender's next batch or the one who gets its place

	if err == nil {
		b.note(result)
	}
}

// note does the bookkeeping of a batch.
func (b *batcher) note(r Result) {
	r.Open = b.breaker.notClosed.Load()
	b.sender.After(r)
}

// answer finishes a request, or sends it again.
func (b *batcher) answer(batch *batch, q *Request) {
	switch q.outcome {
	case answered, failed:
		q.finish()
	case otherWay:
		batch.undecided = append(batch.undecided, q)
	case slotMoves:
		if !b.sendLater(q) {
			q.finish()
		}
	case askAgain:
		// A clock that jumps between any two calls would have it asked forever.
		if q.asked {
			q.fail(errClock)
			return
		}
		q.asked = true
		b.submit(q, false)
	}
}

// sendLater sends a request again after a growing pause: its slot moves, and its keys are on two nodes for a moment. It
// reports false unless, after the pause, as much time again is left for the call.
func (b *batcher) sendLater(q *Request) bool {
	pause := rediskit.MovingPause << q.moved
	if b.sender.Clock.Now()+tat.Ticks(2*pause) >= q.deadline {
		return false
	}
	// The error was set for the case that no time is left.
	q.moved++
	q.Err = nil
	time.AfterFunc(pause, func() { b.submit(q, false) })
	return true
}

// errClock is the error of a quota that asked twice for its period.
var errClock = errors.New("the server's clock has moved by more than a period between two calls")

// learn records what a batch has shown of the server. Requests that have not run go before those that wait.
func (b *batcher) learn(batch *batch, err error, now int64) {
	cluster, probed := b.sender.cluster != nil, batch.over && batch.probe != nil
	if !cluster && !probed && len(batch.undecided) == 0 {
		return
	}
	for _, q := range batch.undecided {
		q.Err, q.byClient = nil, true
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.Insert(b.waiting, 0, batch.undecided...)

	switch {
	case cluster:
		b.crossing.Learn(cmp.Or(err, batch.notRun), batch.way == byNode && batch.several, now)
	case len(batch.undecided) > 0:
		// CROSSSLOT is an answer of the server itself, so one is enough.
		b.single.Settle(redisstats.BySubject, now)
	default:
		b.single.Learn(batch.probe, now)
	}
}

// newProbe returns a probe of the server if one is due. Only a single server and the shards of a ring are probed. The caller
// holds b.mu.
func (b *batcher) newProbe(now int64) *kind.Probe {
	if probed := b == b.sender.only || b.sender.ring != nil && b.Server != ""; !probed || !b.single.Due(now) {
		return nil
	}
	return kind.NewProbe(b.sender.Prefix)
}

// Kind is what the server has shown.
func (b *batcher) Kind() redisstats.Kind {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.sender.cluster == nil:
		return b.single.Kind()
	case b.Server == "":
		return redisstats.BySubject
	}
	return b.crossing.Kind(b.sender.Clock.Now())
}

// leave ends a sender, unless its batch was late and it has no place any more.
func (b *batcher) leave(batch *batch) {
	if batch.late {
		return
	}
	batch.reset()
	batches.Put(batch)
	b.giveUp()
}

// giveUp gives the place of a sender to another if requests wait.
func (b *batcher) giveUp() {
	b.mu.Lock()
	more := len(b.waiting) > 0
	if !more {
		b.inFlight--
	}
	b.mu.Unlock()
	// In another goroutine: this one may be a caller's, who has an answer.
	if more {
		go b.sendLoop()
	}
}
