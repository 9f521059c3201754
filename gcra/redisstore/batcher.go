package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// A batcher sends requests to one server, many in one call (group commit).
//
// A request that finds no batch in flight is sent at once. Requests that arrive
// while batches are in flight wait, and are sent together as soon as one of these
// is answered: the busier the server, the larger the batches and the cheaper a
// request. No timer holds a batch back, and an idle batcher has no goroutine.
type batcher struct {
	store   *Store
	server  string
	breaker *breaker

	mu       sync.Mutex
	waiting  []*request
	known    known // of the server, see way.go
	inFlight int   // batches, each with its sender
	deadline int64 // of the last request; tells Stats when the batcher was last used
}

// maxInFlight is how many batches of a batcher may be in flight: while Redis
// works on one, the next is being written and the one before read.
const maxInFlight = 2

// submit gives a request to a sender, or answers it at once while the breaker is
// open. It does not block. With inline the caller may be the sender: if no batch is
// in flight, submit returns when the request is answered.
func (b *batcher) submit(q *request, inline bool) {
	b.mu.Lock()
	b.deadline = q.deadline
	if b.breaker.denies(b.inFlight) {
		b.mu.Unlock()
		q.fail(ErrUnavailable)
		return
	}
	idle := b.inFlight == 0
	send := b.inFlight < maxInFlight
	if q.sentBefore() {
		// Its time may be up before that of the batches in flight, so it waits for none of them.
		b.waiting, send = slices.Insert(b.waiting, 0, q), true
	} else {
		b.waiting = append(b.waiting, q)
	}
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
	batch := batches.Get().(*batch)
	for {
		// Let callers submit that are about to. With few callers, this is what
		// fills a batch.
		runtime.Gosched()
		if b.fill(batch); batch.n == 0 {
			batches.Put(batch)
			return
		}
		if !b.sendTimed(batch) {
			return // without giving the batch back: its answer may still come
		}
		batch.reset()
		// The callers that have their answers are ready on this thread. An idle one
		// may take the sender before they have run; so it yields once more.
		runtime.Gosched()
	}
}

// sendInline sends one batch in the goroutine of a caller: on a busy machine, a
// switch to another goroutine costs a lone request as much as its round trip. The
// client must return when the context ends.
func (b *batcher) sendInline() {
	batch := batches.Get().(*batch)
	defer batches.Put(batch)
	if b.fill(batch); batch.n == 0 {
		return
	}
	if done, ok := b.beforeSend(batch); ok {
		sent := b.send(batch.timer.start(b.left(batch)), batch)
		batch.timer.stop()
		b.afterSend(batch, batch.deliver(), sent, done)
	}
	batch.reset()
	b.handOff()
}

// fill moves waiting requests into the batch. Requests whose time is up are
// answered with an error instead. If the batch stays empty, the sender must leave:
// it is no longer counted as in flight.
func (b *batcher) fill(batch *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	if len(b.waiting) > 0 {
		now := b.store.clock.Now()
		for _, q := range b.waiting {
			w := b.way(q, now)
			if now >= q.deadline {
				q.fail(b.store.timeoutError())
			} else if w == bySubject && q.several() {
				go b.store.split(q)
			} else if !batch.add(q, w) {
				break
			}
			n++
		}
		if batch.n > 0 {
			batch.client, batch.test = b.store.clientOf(batch.node), b.newTest(now)
		}
	}
	rest := copy(b.waiting, b.waiting[n:])
	clear(b.waiting[rest:])
	b.waiting = b.waiting[:rest]
	if batch.n == 0 {
		b.inFlight--
	}
}

// sendTimed sends the batch and answers its requests. If the server has not
// answered by the first deadline, all get an error at once. sendTimed then reports
// false, when the client has stopped waiting too.
func (b *batcher) sendTimed(batch *batch) (inTime bool) {
	done, ok := b.beforeSend(batch)
	if !ok {
		return true
	}
	left := b.left(batch)
	timer := time.AfterFunc(left, func() {
		err := b.store.timeoutError()
		for q := range batch.requests() {
			q.err = &failure{err}
		}
		b.afterSend(batch, err, 0, done)
		b.handOff()
	})
	sent := b.send(deadlineContext{context.Background(), time.Now().Add(left)}, batch)
	if !timer.Stop() {
		return false
	}
	b.afterSend(batch, batch.deliver(), sent, done)
	return true
}

// beforeSend asks the breaker, and prepares the denial cache for refunds. While the
// breaker is open it answers the requests and reports false. done is for
// breaker.report.
func (b *batcher) beforeSend(batch *batch) (done func(error), ok bool) {
	done, err := b.breaker.allow()
	for q := range batch.requests() {
		if err != nil {
			q.fail(err)
		} else {
			b.store.denials.beforeSend(q)
		}
	}
	return done, err == nil
}

// send makes the call, and returns the time before it. A panic in a hook of the
// client becomes an error of the batch.
func (b *batcher) send(ctx context.Context, batch *batch) (sent int64) {
	defer func() {
		if p := recover(); p != nil {
			batch.noAnswer = fmt.Errorf("panic: %v", p)
		}
	}()
	sent = b.store.clock.Now()
	batch.way.send(ctx, batch)
	return sent
}

// afterSend records the result of a batch and finishes its requests, each of which
// has its answer or its error. sent is the time before the call.
func (b *batcher) afterSend(batch *batch, err error, sent int64, done func(error)) {
	now := b.store.clock.Now()
	b.breaker.report(done, err)
	b.store.count(err, batch.size()-batch.notRun, now-sent)
	b.store.noteResult(err)
	b.store.markAfter(batch, err, sent)
	for q := range batch.requests() {
		if q.learned && q.err == nil {
			b.store.clock.Learn(q.at, sent)
		}
		b.store.denials.learn(q, sent)
		switch {
		case q.err == errNotRun: // learn sends it again
		case redis.HasErrorPrefix(q.err, "TRYAGAIN") && b.sendLater(q):
		case q.err != nil || !q.unfit:
			q.finish()
		case q.again:
			q.fail(errClock)
		default:
			q.again = true
			b.submit(q, false)
		}
	}
	b.learn(batch, err, now)
	if err == nil && b.store.reporter.grants.Any() {
		b.store.reporter.wake()
	}
}

// sendLater sends a request again after a growing pause: its slot moves, and its keys are on two nodes for a moment. It
// reports false if less time than the pause would be left for the call.
func (b *batcher) sendLater(q *request) bool {
	pause := rediskit.MovingPause << q.moved
	if b.store.clock.Now()+tat.Ticks(2*pause) >= q.deadline {
		return false
	}
	q.moved++
	q.err = nil
	time.AfterFunc(pause, func() { b.submit(q, false) })
	return true
}

// errClock is the error of a quota that asked twice for its period.
var errClock = errors.New("the server's clock has moved by more than a period between two calls")

// left is the time until the first deadline of the batch.
func (b *batcher) left(batch *batch) time.Duration {
	deadline := int64(math.MaxInt64)
	for q := range batch.requests() {
		deadline = min(deadline, q.deadline)
	}
	return tat.Duration(deadline - b.store.clock.Now())
}

// timeoutError is the error of a request whose time is up.
func (s *Store) timeoutError() error {
	return fmt.Errorf("no answer within %v: %w", s.timeout, context.DeadlineExceeded)
}

// handOff ends a sender: another takes its place if requests wait.
func (b *batcher) handOff() {
	b.mu.Lock()
	more := len(b.waiting) > 0
	if !more {
		b.inFlight--
	}
	b.mu.Unlock()
	if more {
		go b.sendLoop()
	}
}

// deadlineContext is a context with a deadline and without a timer: the client
// bounds dialling and, where its options say so, reading by the deadline.
type deadlineContext struct {
	context.Context
	deadline time.Time
}

func (c deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// A callTimer makes contexts that end at their deadline, one after another, from one timer
// and one channel. Those of context.WithTimeout cost a lone caller 3 % of its time.
type callTimer struct {
	timer *time.Timer
	done  chan struct{} // closed when the timer fires
}

// start returns a context that ends after d. It must not be used after stop.
func (t *callTimer) start(d time.Duration) context.Context {
	if t.timer == nil {
		done := make(chan struct{})
		t.timer, t.done = time.AfterFunc(d, func() { close(done) }), done
	} else {
		t.timer.Reset(d)
	}
	return &timedContext{deadlineContext{context.Background(), time.Now().Add(d)}, t.done}
}

// stop ends the use of the context. A channel that is closed is not used again.
func (t *callTimer) stop() {
	if !t.timer.Stop() {
		*t = callTimer{}
	}
}

type timedContext struct {
	deadlineContext
	done <-chan struct{}
}

func (c *timedContext) Done() <-chan struct{} { return c.done }

func (c *timedContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
