package gcra

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// lane is the way to one server, on which rides share trips (group commit).
//
// A ride that finds the lane idle leaves at once. Those that come while
// batches are under way wait, and leave together as soon as one of these is
// back: the busier the lane, the larger its batches and the cheaper a check. No
// timer holds a batch back, and no goroutine stays once the lane is empty.
type lane struct {
	store   *Redis
	server  string
	breaker *breaker

	mu       sync.Mutex
	waiting  []*ride
	underWay int   // drivers
	wanted   int64 // the deadline of the ride that came last
}

// maxUnderWay is how many batches of a lane may be under way: while Redis
// works on one, the next is being written and the one before read.
const maxUnderWay = 2

// board puts a ride on the lane, or answers it at once where the lane rests.
// It never blocks, unless the caller may drive: then, on an idle lane, it
// returns when the ride is answered.
func (l *lane) board(rd *ride, mayDrive bool) {
	l.mu.Lock()
	l.wanted = rd.deadline
	if l.breaker.refuses(l.underWay) {
		l.mu.Unlock()
		rd.fail(ErrUnavailable)
		return
	}
	l.waiting = append(l.waiting, rd)
	idle := l.underWay == 0
	drive := l.underWay < maxUnderWay
	if drive {
		l.underWay++
	}
	l.mu.Unlock()
	switch {
	case drive && idle && mayDrive:
		l.driveOnce()
	case drive:
		go l.drive()
	}
}

// drive sends batches until nobody waits.
func (l *lane) drive() {
	b := batches.Get().(*batch)
	for {
		// Callers that are about to board get the chance to. With few of them
		// this is what fills a batch.
		runtime.Gosched()
		if l.next(b); b.n == 0 {
			batches.Put(b)
			return
		}
		if !l.sendWatched(b) {
			return // without giving the batch back: its answer may still come
		}
		b.reset()
	}
}

// driveOnce sends one batch for a caller who would only wait for it: to hand a
// lone ride to a goroutine of its own costs as much as its trip on a busy
// machine. The client must return when the context ends.
func (l *lane) driveOnce() {
	b := batches.Get().(*batch)
	if l.next(b); b.n > 0 {
		if done, ok := l.depart(b); ok {
			ctx, cancel := context.WithTimeout(context.Background(), l.left(b))
			sent := l.run(ctx, b)
			cancel()
			l.arrive(b, sent, done)
		}
		b.reset()
		l.replace()
	}
	batches.Put(b)
}

// next fills the batch with those who wait. With nobody there the driver's
// place on the lane is given up.
func (l *lane) next(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fill(b)
	if b.n == 0 {
		l.underWay--
	}
}

// fill moves rides that wait into the batch. Those whose time is up do not
// depart: they are going to be decided elsewhere.
func (l *lane) fill(b *batch) {
	if len(l.waiting) == 0 {
		return
	}
	now := l.store.mirror.now()
	n := 0
	for _, rd := range l.waiting {
		if now >= rd.deadline {
			rd.fail(l.store.late())
		} else if !b.add(rd, l.store.only != nil) {
			break
		}
		n++
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
}

// sendWatched sends the batch and answers its rides. It reports false when they
// were answered before it was back, because the time of the first was up:
// however long the client waits for a server, nobody else does.
func (l *lane) sendWatched(b *batch) (inTime bool) {
	done, ok := l.depart(b)
	if !ok {
		return true
	}
	left := l.left(b)
	b.watchdog.start(left, func() { // from here on the rides may be gone at any time
		late := l.store.late()
		l.breaker.report(done, late)
		l.store.count(late, 0, 0)
		for rd := range b.rides() {
			rd.err = late
			l.store.mirror.learn(rd, 0)
			rd.fail(late)
		}
		l.replace()
	})
	sent := l.run(until{context.Background(), time.Now().Add(left)}, b)
	if !b.watchdog.stop() {
		l.store.heard(l.store.late())
		return false
	}
	l.arrive(b, sent, done)
	return true
}

// depart asks the breaker for leave and tells the mirror. Where the lane rests
// it answers the rides and reports false.
func (l *lane) depart(b *batch) (done func(error), ok bool) {
	done, err := l.breaker.allow()
	for rd := range b.rides() {
		if err != nil {
			rd.fail(err)
		} else {
			l.store.mirror.depart(rd)
		}
	}
	return done, err == nil
}

// run makes the trip, and returns when it began. A panic on the way, in a hook
// of the client's, is an error of the batch.
func (l *lane) run(ctx context.Context, b *batch) (sent int64) {
	defer func() {
		if p := recover(); p != nil {
			b.panicked = fmt.Errorf("panic: %v", p)
		}
	}()
	sent = l.store.mirror.now()
	b.run(ctx, l.store.client)
	return sent
}

// arrive answers the rides of a batch that is back.
func (l *lane) arrive(b *batch, sent int64, done func(error)) {
	err := b.settle()
	l.breaker.report(done, err)
	l.store.count(err, b.size(), l.store.mirror.now()-sent)
	l.store.heard(err)
	for rd := range b.rides() {
		l.store.mirror.learn(rd, sent)
		rd.finish()
	}
}

// left is the time that the first of the batch's callers has left.
func (l *lane) left(b *batch) time.Duration {
	deadline := int64(math.MaxInt64)
	for rd := range b.rides() {
		deadline = min(deadline, rd.deadline)
	}
	return time.Duration(deadline-l.store.mirror.now()) * tick
}

// late is the error of a ride whose time is up.
func (r *Redis) late() error {
	return fmt.Errorf("no answer within %v: %w", r.timeout(), context.DeadlineExceeded)
}

// replace sets another driver in the place of one that leaves the lane.
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
	if rediskit.Down(err) {
		r.reload(retryReload)
	}
}

// until is a context with a deadline and without a timer: the client bounds
// dialling and, where its options say so, reading by the deadline, and the
// watchdog looks after the rest.
type until struct {
	context.Context
	deadline time.Time
}

func (u until) Deadline() (time.Time, bool) { return u.deadline, true }
