package gcra

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// lane is the way to one server, on which rides share trips (group commit).
//
// A ride that finds the lane idle leaves at once. Those that come while
// batches are under way wait, and leave together as soon as one of these is
// back: the busier the lane, the larger its batches and the cheaper a check. No
// timer holds a batch back, and no goroutine stays once the lane is empty.
type lane struct {
	store   *Redis
	breaker *breaker

	mu       sync.Mutex
	waiting  []*ride
	underWay int // drivers
}

// maxUnderWay is how many batches of a lane may be under way: while Redis
// works on one, the next is being written and the one before read.
const maxUnderWay = 2

// board puts a ride on the lane, or answers it at once where the lane rests.
// It never blocks.
func (l *lane) board(rd *ride) {
	rd.deadline = time.Now().Add(l.store.timeout())
	l.mu.Lock()
	if l.breaker.refuses(l.underWay) {
		l.mu.Unlock()
		rd.fail(ErrUnavailable)
		return
	}
	l.waiting = append(l.waiting, rd)
	drive := l.underWay < maxUnderWay
	if drive {
		l.underWay++
	}
	l.mu.Unlock()
	if drive {
		go l.drive()
	}
}

// drive sends batches until nobody waits.
func (l *lane) drive() {
	b := batches.Get().(*batch)
	for {
		// Callers that are about to board get the chance to. With few of them
		// this is what fills a batch; with none it costs about 100 ns.
		runtime.Gosched()
		l.mu.Lock()
		l.fill(b)
		if b.n == 0 {
			l.underWay--
			l.mu.Unlock()
			batches.Put(b)
			return
		}
		l.mu.Unlock()
		if !l.send(b) {
			return
		}
		b.reset()
	}
}

// fill moves rides that wait into the batch. Those whose callers have given up
// do not depart: they have been decided elsewhere.
func (l *lane) fill(b *batch) {
	if len(l.waiting) == 0 {
		return
	}
	now := time.Now()
	n := 0
	for _, rd := range l.waiting {
		if now.After(rd.deadline) {
			rd.fail(context.DeadlineExceeded)
		} else if !b.add(rd, l.store.whole) {
			break
		}
		n++
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
}

// send runs the batch and lets its riders go. It reports false when the batch
// was not back in time: its place on the lane has been given to another by
// then. However long the client waits for a server, the lane does not.
func (l *lane) send(b *batch) (inTime bool) {
	done, err := l.breaker.allow()
	if err != nil {
		for rd := range b.rides() {
			rd.fail(err)
		}
		return true
	}
	m := l.store.mirror
	for rd := range b.rides() {
		m.depart(rd)
	}
	timeout := l.store.timeout()
	b.watchdog.start(timeout, func() {
		l.breaker.report(done, fmt.Errorf("no answer within %v: %w", timeout, context.DeadlineExceeded))
		l.replace()
	})
	sent := m.now()
	b.run(until{context.Background(), time.Now().Add(timeout)}, l.store.client)
	err = b.err()
	inTime = b.watchdog.stop()
	if inTime {
		l.breaker.report(done, err)
	}
	l.store.heard(err)
	for rd := range b.rides() {
		m.learn(rd, sent)
		rd.finish()
	}
	return inTime
}

// replace sets another driver in the place of one that is late.
func (l *lane) replace() {
	l.mu.Lock()
	more := len(l.waiting) > 0
	if !more {
		l.underWay--
	}
	l.mu.Unlock()
	if more {
		go l.drive()
	}
}

// heard takes note of how a batch went.
func (r *Redis) heard(err error) {
	if err == nil {
		r.routed.Store(true)
		return
	}
	if c, ok := r.client.(*redis.ClusterClient); ok && isOutage(err) {
		// Left to itself the client looks for a new master once a minute.
		c.ReloadState(context.Background())
	}
}

// until is a context with a deadline and without a timer: the client bounds
// dialling and, where its options say so, reading by the deadline, and nobody
// waits for Done. Callers leave by their own time.
type until struct {
	context.Context
	deadline time.Time
}

func (u until) Deadline() (time.Time, bool) { return u.deadline, true }
