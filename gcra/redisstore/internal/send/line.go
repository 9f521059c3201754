package send

import (
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

// A line is the requests that wait for one server. Carriers take them there, many in one batch (group commit).
//
//  1. A request leaves at once if the pace allows it. Otherwise it waits, and leaves with all that wait as soon as the pace
//     allows it when another comes or a batch is back: the busier the server, the larger the batches and the cheaper a request.
//     No timer holds a batch back.
//  2. A carrier is a goroutine, or the caller of a lone request. It has a place for one batch, and inFlight is how many are
//     taken. When its batch is back, it gives up the place, and takes the next only if the pace allows it. Requests that come
//     again take one more, whatever the pace. While somebody waits, a place is taken. A carrier that finds nobody ends.
//  3. A batch that is not back by its deadline is late: expire takes it from its carrier, answers its requests and gives up the
//     place. The carrier hangs as long as the client waits.
//  4. A request belongs to the line from submit until it is finished. Then its caller may free it, so nothing of it is read any
//     more.
type line struct {
	Server  string // its address
	sender  *Sender
	node    atomic.Pointer[redis.Client] // the server's client, nil if it is not known
	used    atomic.Int64                 // when the last request came
	hanging atomic.Int64                 // carriers that hang

	mu       sync.Mutex
	waiting  []*Request // each precedes the next
	inFlight int
	pace     pace
	breaker  breaker

	// What the server has shown of itself.
	single  kind.State // a single server, or a shard
	noSlots int64      // a node of a cluster: until when it gets no run for several slots
}

// nodeRetry is how long a node of a cluster that has failed in a run for several slots gets none. It may be old, or a proxy in
// the middle of a deployment, or away.
const nodeRetry = 10 * time.Second

// submit puts requests in line that have made equally many trips, or fails them at once while the breaker is open. It returns
// at once, unless inline lets the caller be the carrier: if no batch is in flight, it carries one, which usually has the request.
// On a busy machine, a switch to another goroutine costs a lone request as much as its trip.
func (l *line) submit(now int64, inline bool, list ...*Request) {
	l.used.Store(now)
	l.mu.Lock()
	if l.breaker.denies(now) {
		l.mu.Unlock()
		for _, q := range list {
			q.fail(ErrUnavailable)
		}
		return
	}

	for _, q := range list {
		i := len(l.waiting)
		for i > 0 && q.precedes(l.waiting[i-1]) { // nearly always the new one is the last
			i--
		}
		l.waiting = slices.Insert(l.waiting, i, q)
	}
	inline = inline && l.inFlight == 0
	leaves := l.takePlace(now, list[0].trips > 0)
	l.mu.Unlock()

	switch {
	case leaves && inline:
		if batch := l.load(); batch != nil && l.trip(batch) {
			l.pass(batch)
			batch.free()
		}
	case leaves:
		go l.carry()
	}
}

// takePlace takes a place for a carrier if somebody waits and a batch may leave. Requests that come again may have an earlier
// deadline than the batches in flight, so they wait for none. The caller holds l.mu.
func (l *line) takePlace(now int64, again bool) (leaves bool) {
	if len(l.waiting) == 0 {
		return false
	}
	if !again && (!l.pace.may(now, l.inFlight) || l.inFlight >= minWindow && !l.spare()) {
		return false
	}

	// Before the carrier starts: a caller that comes next must see its place taken.
	l.inFlight++
	l.pace.left = now
	return true
}

// spare reports whether the client has a connection for one more batch than minWindow: a dial would take several round trips.
// The caller holds l.mu.
func (l *line) spare() bool {
	node, busy := l.node.Load(), l.inFlight+int(l.hanging.Load())
	if node == nil || busy >= l.pace.most {
		return false
	}
	stats := node.PoolStats()
	return stats.IdleConns > 0 && int(stats.TotalConns) > busy // IdleConns has those that are being dialled
}

// mostInFlight is how many batches may be in flight with a client: others may need half of its pool. A pool that is not dialled
// ahead has no connection for more than minWindow.
func mostInFlight(client *redis.Client) int {
	if client == nil || client.Options().MinIdleConns == 0 || client.Options().PipelinePoolSize >= 0 {
		return minWindow
	}
	return max(minWindow, min(maxWindow, client.Options().PoolSize/2))
}

// carry takes batches to the server until none may leave.
func (l *line) carry() {
	for leaves := true; leaves; {
		// Let callers submit that are about to. With few callers, this is what fills a batch.
		runtime.Gosched()
		batch := l.load()
		if batch == nil || !l.trip(batch) {
			return
		}

		// Let the callers that have their answers run and submit again: the yield above may come on another thread than
		// the one they wait for.
		runtime.Gosched()
		leaves = l.giveUp(batch)
		batch.free()
	}
}

// load moves requests that wait into a batch, for a carrier that has a place. A request whose time is up fails, and one for which
// the server wants several runs is split. If nothing is left to send, it returns nil, and the carrier has no place.
func (l *line) load() *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Others may have taken them all. Then no clock is read: the callers have their answers, and a clock of a test may be theirs.
	if len(l.waiting) == 0 {
		l.inFlight--
		return nil
	}

	batch := newBatch()
	now := l.sender.Clock.Now()
	batch.line, batch.sent, batch.kind = l, now, l.kind(now)

	denied, n := l.breaker.denies(now), 0
	for _, q := range l.waiting {
		if now >= q.deadline {
			q.fail(rediskit.NoAnswer(l.sender.Timeout))
		} else if denied {
			q.fail(ErrUnavailable)
		} else if q.several(batch.kind) {
			// In another goroutine: its parts may come back to this line, whose lock is held.
			go l.sender.split(q)
		} else if !batch.add(q) {
			// The rest has made fewer trips, or finds no room: the next carrier takes it.
			break
		}
		n++
	}
	l.waiting = slices.Delete(l.waiting, 0, n)

	if len(batch.requests) == 0 {
		l.inFlight--
		batch.free()
		return nil
	}
	// By subject, the cluster's client finds the node of each key. Requests that come again have a key that this node lacks, and a
	// lone request of one subject is one run either way.
	if batch.kind == redisstats.ByNode && (len(batch.requests) == 1 || batch.requests[0].trips > 0) {
		batch.kind = redisstats.BySubject
	}
	l.breaker.begin()
	if l.probed() && l.single.Due(now) {
		batch.probe = kind.NewProbe(l.sender.Prefix)
	}
	return batch
}

// trip takes a batch to the server and back. It reports false if the batch is late: then the place and the batch are the
// carrier's no more.
func (l *line) trip(batch *batch) (inTime bool) {
	for _, q := range batch.requests {
		q.trips++
		l.sender.Before(q)
	}
	batch.write()

	ctx := &tripContext{context.Background(), l.sender.Clock.Time(batch.deadline), nil}
	// A client that heeds contexts returns when the batch is late, and with it the caller that carries it.
	if l.sender.inline {
		ctx.done = batch.expired
	}

	batch.timer.Reset(tat.Duration(batch.deadline - batch.sent))
	noAnswer := rediskit.Call(func() error { return batch.send(ctx, l.client(batch.kind)) })
	// Stop decides whose the batch is: this carrier's, or expire's.
	if !batch.timer.Stop() {
		l.hanging.Add(-1)
		return false
	}
	l.arrive(batch, noAnswer, batch.probe)
	return true
}

// A tripContext is the context of a batch's trip. A context of context.WithTimeout would cost a lone caller 3 % of its time.
//
// It ends only for a client that bounds calls. Others go on with a dial and a handshake when the time is up, so that later
// batches have the connection. If the context ended, they would give up before the handshake, and where dial and handshake
// together take longer than the Timeout, one more batch would fail for each connection.
type tripContext struct {
	context.Context
	deadline time.Time
	done     <-chan struct{} // closed at the deadline, or nil
}

func (c *tripContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *tripContext) Done() <-chan struct{} { return c.done }

func (c *tripContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// expire takes a batch that is late from its carrier, which hangs from now on.
func (b *batch) expire() {
	close(b.expired)
	b.line.arrive(b, rediskit.NoAnswer(b.line.sender.Timeout), nil)
	b.line.hanging.Add(1)
	b.line.pass(b)
}

// arrive learns from a batch whose trip is over, and answers its requests. noAnswer is not nil if there are no replies; probe is
// nil if it has none.
func (l *line) arrive(batch *batch, noAnswer error, probe *kind.Probe) {
	s := l.sender
	batch.setAnswers(noAnswer)
	now := s.Clock.Now()
	batch.took = now - batch.sent
	result := Result{Server: l.Server, Requests: len(batch.requests), Took: batch.took, Err: batch.err}

	// A caller that is answered may call again at once, and is to find what was learned.
	s.learnTopology(batch.err)
	l.mu.Lock()
	l.breaker.count(batch.err, batch.sent, now)
	l.learn(batch, probe, now)
	result.Open = l.breaker.state(now) != redisstats.BreakerClosed
	l.mu.Unlock()

	if batch.err != nil {
		s.After(result)
	}

	// A request of which nothing has run comes again after a pause, which grows: a slot that moves is on two nodes for a moment.
	pause := rediskit.MovingPause << (batch.requests[0].trips - 1)
	var again []*Request
	for _, q := range batch.requests {
		s.Learn(q, batch.sent, now)
		// After it, as much time must be left.
		if q.notRun && now+tat.Ticks(2*pause) < q.deadline {
			again = append(again, q)
		} else {
			q.finish()
		}
	}
	if again != nil {
		time.AfterFunc(pause, func() { l.submit(s.Clock.Now(), false, again...) })
	}
	if batch.err == nil {
		s.After(result)
	}
}

// learn records what a batch has shown of the server. The caller holds l.mu.
func (l *line) learn(batch *batch, probe *kind.Probe, now int64) {
	switch {
	case batch.kind == redisstats.ByNode && (batch.err != nil || batch.refused):
		l.noSlots = now + tat.Ticks(nodeRetry)
	case batch.refused:
		// The server has become a cluster. CROSSSLOT is an answer of the server itself, so one is enough.
		l.single.Settle(redisstats.BySubject, now)
	case probe != nil:
		l.single.Learn(probe, now)
	}
}

// giveUp gives up the place of a batch that is over, and reports whether it has taken one for the next. It reads no clock, for
// load's reason.
func (l *line) giveUp(batch *batch) (leaves bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := batch.sent + batch.took
	l.inFlight--
	l.pace.answered(now, batch.took, batch.err)
	return l.takePlace(now, false)
}

// pass gives up the place of a batch that is over, and starts a carrier for the next: this goroutine may be a caller's, who has an
// answer.
func (l *line) pass(batch *batch) {
	if l.giveUp(batch) {
		go l.carry()
	}
}

// probed reports whether the server is probed: a single one, or the shard of a ring.
func (l *line) probed() bool { return l.sender.cluster == nil && l.node.Load() != nil }

// client is the client for runs. On a cluster it is the store's, which finds the node, unless keys in several slots tell it none.
func (l *line) client(k redisstats.Kind) redis.UniversalClient {
	if l.probed() || k == redisstats.ByNode {
		return l.node.Load()
	}
	return l.sender.Client
}

// kind is the server's kind. The caller holds l.mu.
func (l *line) kind(now int64) redisstats.Kind {
	switch {
	case l.sender.cluster == nil:
		return l.single.Kind()
	case l.node.Load() == nil || now < l.noSlots:
		return redisstats.BySubject
	}
	return redisstats.ByNode
}

func (l *line) state() redisstats.ServerState {
	now := l.sender.Clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	return redisstats.ServerState{Server: l.Server, Breaker: l.breaker.state(now), Kind: l.kind(now)}
}
