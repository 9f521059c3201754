package send

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/kind"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// A batcher sends requests to one server, many in one call (group commit).
//
//  1. A request is sent at once if the pace allows it. Otherwise it waits, and goes with all that wait as soon as another
//     comes, or one in flight is answered, and the pace allows that: the busier the server, the larger the batches and the
//     cheaper a request. No timer holds a batch back.
//  2. inFlight is the number of places taken by senders: the goroutines of sendLoop, and a caller in sendInline. Each has
//     one batch, and gives up its place when that is over: it sends the next only if the pace allows it. A request that is
//     sent again takes one more, whatever the pace. An idle batcher has no sender. A call whose time is up has no place,
//     but hangs as long as the client waits.
//  3. A request belongs to the batcher from submit until it is finished. Then its caller may free it, so nothing of it is
//     read any more. One that is asked again, or sent in another way, stays with the batcher.
//  4. For each call that is made, each of its requests goes to Config.Before once and to Config.Learn once.
type batcher struct {
	Server string
	sender *Sender

	deadline atomic.Int64 // of the last request: Stats leaves out batchers that were not used since
	hang     atomic.Int64 // calls whose time is up, and for which the client waits

	mu       sync.Mutex
	waiting  []*Request // each precedes the next
	inFlight int
	pace     pace
	breaker  breaker

	// What the server has shown of itself: a single one or a shard, or a node of a cluster.
	single   kind.State
	crossing kind.Crossing
}

// submit gives a request to a sender, or answers it at once while the breaker is open. It does not block. With inline the
// caller may be the sender: if no batch is in flight, it sends one, which usually has the request, and submit returns when
// that is over.
func (b *batcher) submit(q *Request, inline bool) {
	b.deadline.Store(q.deadline)

	now := q.deadline - tat.Ticks(b.sender.Timeout) // about now, and no clock is read
	b.mu.Lock()
	if b.breaker.denies(now) {
		b.mu.Unlock()
		q.fail(ErrUnavailable)
		return
	}

	b.insert(q)
	idle := b.inFlight == 0
	send := b.takePlace(now)
	b.mu.Unlock()

	switch {
	case send && idle && inline:
		b.sendInline()
	case send:
		go b.sendLoop()
	}
}

// insert puts a request in line. The caller holds b.mu.
func (b *batcher) insert(q *Request) {
	i := len(b.waiting)
	for i > 0 && q.precedes(b.waiting[i-1]) { // nearly always the new one is the last
		i--
	}
	b.waiting = slices.Insert(b.waiting, i, q)
}

// takePlace takes a place for a sender if a batch may leave for those that wait. The caller holds b.mu.
func (b *batcher) takePlace(now int64) bool {
	if len(b.waiting) == 0 {
		return false
	}
	// A request that was sent before may have an earlier deadline than the batches in flight, so it waits for none.
	first := b.waiting[0]
	if first.sent == 0 && (!b.pace.may(now, b.inFlight) || b.inFlight >= minWindow && !b.spare(first.node)) {
		return false
	}

	// Before the sender starts: a caller that comes next must see its place taken.
	b.inFlight++
	b.pace.left = now
	return true
}

// spare reports whether the client has a connection for one more batch than minWindow: a dial would take several round trips
// of the call. The caller holds b.mu.
func (b *batcher) spare(node *redis.Client) bool {
	if node == nil {
		node, _ = b.sender.Client.(*redis.Client)
	}
	used := b.inFlight + int(b.hang.Load())
	if node == nil || used >= b.pace.most {
		return false
	}
	stats := node.PoolStats()
	return stats.IdleConns > 0 && int(stats.TotalConns) > used // IdleConns has those that are being dialled
}

// mostInFlight is how many batches may be in flight with a client: others may need half of its pool. A pool that is not dialled
// ahead has no connection for more than minWindow.
func mostInFlight(client *redis.Client) int {
	if client == nil || client.Options().MinIdleConns == 0 || client.Options().PipelinePoolSize >= 0 {
		return minWindow
	}
	return max(minWindow, min(maxWindow, client.Options().PoolSize/2))
}

// sendLoop sends batches until none may leave.
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
		if !batch.late {
			b.giveUp(batch)
			batch.reset()
			batches.Put(batch)
		}
	}
}

// fill moves waiting requests into the batch, which is new or over. It answers a request whose time is up with
// an error, and splits a request of several subjects that would be sent by subject. It reports false if the batch stays
// empty, must wait or was late: then the sender has lost its place, and the batch is not its own any more.
func (b *batcher) fill(batch *batch) bool {
	if batch.late {
		return false
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	mine := len(batch.requests) == 0 || b.leave(batch)
	batch.reset()

	n := 0
	if mine && len(b.waiting) > 0 {
		now := b.sender.Clock.Now()
		// Chosen now, not in submit: the server may have shown its kind since.
		batch.kind, batch.node = b.kind(now), b.waiting[0].node
		// The client finds the node that can answer a request that another has not.
		if batch.kind == redisstats.ByNode && (b.waiting[0].sent > 0 || batch.node == nil) {
			batch.kind = redisstats.BySubject
		}
		for _, q := range b.waiting {
			if now >= q.deadline {
				q.fail(rediskit.NoAnswer(b.sender.Timeout))
			} else if q.several(batch.kind) {
				// Its parts may come back to this batcher, whose lock is held.
				go b.sender.split(q)
			} else if !batch.add(q) {
				break
			}
			n++
		}

		if len(batch.requests) > 0 {
			batch.batcher, batch.probe, batch.sent = b, b.newProbe(now), now
			// One script for each subject is as good for one, and the client finds the node if it has changed.
			if batch.kind == redisstats.ByNode && batch.oneSubject() {
				batch.kind = redisstats.BySubject
			}
		}
	}

	b.waiting = slices.Delete(b.waiting, 0, n)
	if len(batch.requests) > 0 {
		return true
	}
	if mine {
		b.inFlight--
	}
	batches.Put(batch)
	return false
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
	client := b.sender.clientOf(batch.node)
	if batch.kind == redisstats.ByNode {
		client = batch.node // keys that are not declared tell the client no slot
	}
	batch.write()
	batch.timer.Reset(tat.Duration(batch.deadline - batch.sent))
	noAnswer := rediskit.Call(func() error { return batch.send(ctx, client) })
	if batch.late = !batch.timer.Stop(); !batch.late {
		batch.over = true
		batch.deliver(noAnswer)
		b.end(batch)
		return
	}
	b.hang.Add(-1)
}

// expire answers the requests of a batch that is late, and ends its sender, although the client may still wait.
func (b *batch) expire() {
	close(b.expired)
	b.err = rediskit.NoAnswer(b.batcher.sender.Timeout)
	for _, q := range b.requests {
		q.outcome, q.Err = failed, &failure{b.err}
	}
	b.batcher.end(b)
	// The client may hang for long, so the place is used without it.
	b.batcher.hang.Add(1)
	b.batcher.giveUp(b)
}

// begin asks the breaker, and tells Before of the requests. While the breaker is open it answers them and reports false.
func (b *batcher) begin(batch *batch) (ok bool) {
	b.mu.Lock()
	if b.breaker.denies(batch.sent) {
		batch.err = ErrUnavailable
	} else {
		batch.probing = b.breaker.begin()
	}
	b.mu.Unlock()
	for _, q := range batch.requests {
		if batch.err == nil {
			q.sent++
			b.sender.Before(q)
		} else {
			q.fail(batch.err)
		}
	}
	return batch.err == nil
}

// end answers the requests of a batch, each of which has its answer or its error.
func (b *batcher) end(batch *batch) {
	now, err := b.sender.Clock.Now(), batch.err
	result := Result{Server: b.Server, Requests: len(batch.requests), Takes: batch.takes, Sent: batch.sent, Took: now - batch.sent, Err: err}

	batch.took = result.Took
	if batch.serverTime != 0 {
		b.sender.Clock.Learn(batch.serverTime, batch.sent)
	}

	// A caller that is answered may call again at once, and is to find what was learned.
	b.mu.Lock()
	b.breaker.count(batch.probing, err, batch.sent, now)
	result.Open = b.breaker.state(now) != redisstats.BreakerClosed
	b.mu.Unlock()
	b.sender.learnTopology(err)
	if err != nil {
		b.sender.After(result)
	}

	for _, q := range batch.requests {
		b.sender.Learn(q, batch.sent, now)
		switch pause, again := q.again(now); {
		case !again:
			q.finish()
		case pause == 0:
			batch.again = append(batch.again, q)
		default:
			time.AfterFunc(pause, func() { b.submit(q, false) })
		}
	}
	b.learn(batch, err, now) // what has not run waits again, for the sender's next batch or the one who gets its place

	if err == nil {
		b.sender.After(result)
	}
}

// learn records what a batch has shown of the server. Requests that have not run go before those that wait.
func (b *batcher) learn(batch *batch, err error, now int64) {
	cluster, probed := b.sender.cluster != nil, batch.over && batch.probe != nil
	if !cluster && !probed && len(batch.again) == 0 {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range batch.again {
		b.insert(q)
	}

	switch {
	case cluster:
		b.crossing.Learn(cmp.Or(err, batch.refusal), batch.kind == redisstats.ByNode, now)
	case batch.refusal != nil:
		// CROSSSLOT is an answer of the server itself, so one is enough.
		b.single.Settle(redisstats.BySubject, now)
	case probed:
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

// kind is what the server has shown. The caller holds b.mu.
func (b *batcher) kind(now int64) redisstats.Kind {
	switch {
	case b.sender.cluster == nil:
		return b.single.Kind()
	case b.Server == "":
		return redisstats.BySubject
	}
	return b.crossing.Kind(now)
}

// Kind is what the server has shown.
func (b *batcher) Kind() redisstats.Kind { return b.state().Kind }

// Open reports whether the breaker is not closed.
func (b *batcher) Open() bool { return b.state().Breaker != redisstats.BreakerClosed }

func (b *batcher) state() redisstats.ServerState {
	now := b.sender.Clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	return redisstats.ServerState{Server: b.Server, Breaker: b.breaker.state(now), Kind: b.kind(now)}
}

// leave gives up the place of a batch that is over, and learns from it. It reports whether it has taken a place for the
// next one. The caller holds b.mu. It reads no clock: the callers have their answers, and a clock of a test may be theirs.
func (b *batcher) leave(batch *batch) (again bool) {
	now := batch.sent + batch.took
	b.inFlight--
	b.pace.answered(now, batch.took, batch.err)
	return b.takePlace(now)
}

// giveUp gives the place of a batch that is over to another sender, if one may send.
func (b *batcher) giveUp(batch *batch) {
	b.mu.Lock()
	again := b.leave(batch)
	b.mu.Unlock()
	// In another goroutine: this one may be a caller's, who has an answer.
	if again {
		go b.sendLoop()
	}
}
