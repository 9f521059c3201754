package gcra

import (
	"context"
	"fmt"
	"math"
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
// It never blocks, unless the caller may drive: then, on an idle lane, it
// returns when the ride is answered.
func (l *lane) board(rd *ride, mayDrive bool) {
	l.mu.Lock()
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
		if l.next(b); b.n == 0 {
			batches.Put(b)
			return
		}
		if !l.send(until{context.Background(), l.due(b)}, b) {
			return
		}
		b.reset()
	}
}

// driveOnce sends one batch for a caller who would only wait for it. To hand a
// lone ride to a goroutine of its own costs as much as the trip when the
// machine is busy. The client must honour the context.
func (l *lane) driveOnce() {
	b := batches.Get().(*batch)
	if l.next(b); b.n > 0 {
		ctx, cancel := context.WithDeadline(context.Background(), l.due(b))
		inTime := l.send(ctx, b)
		cancel()
		if !inTime {
			return
		}
		b.reset()
		l.replace()
	}
	batches.Put(b)
}

// next fills the batch with those who wait. With nobody there the driver's
// place on the lane is given up.
func (l *lane) next(b *batch) {
	// Callers that are about to board get the chance to. With few of them this
	// is what fills a batch; with none it costs about 100 ns.
	runtime.Gosched()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fill(b)
	if b.n == 0 {
		l.underWay--
	}
}

// due is when the time of the first of the batch's callers is up.
func (l *lane) due(b *batch) time.Time {
	deadline := int64(math.MaxInt64)
	for rd := range b.rides() {
		deadline = min(deadline, rd.deadline)
	}
	return time.Now().Add(time.Duration(deadline-l.store.mirror.now()) * tick)
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

// send runs the batch and answers its rides. It reports false when they were
// answered before it was back, because the context's deadline had come: however
// long the client waits for a server, nobody else does.
func (l *lane) send(ctx context.Context, b *batch) (inTime bool) {
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
	sent := m.now()
	deadline, _ := ctx.Deadline()
	b.watchdog.start(time.Until(deadline), func() {
		late := l.store.late()
		l.breaker.report(done, late)
		for rd := range b.rides() {
			rd.err = late
			m.learn(rd, sent)
			rd.fail(late)
		}
		l.replace()
	})
	b.run(ctx, l.store.client)
	if !b.watchdog.stop() {
		l.store.heard(l.store.late())
		return false
	}
	err = b.settle()
	l.breaker.report(done, err)
	l.store.heard(err)
	for rd := range b.rides() {
		m.learn(rd, sent)
		rd.finish()
	}
	return true
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
	if c, ok := r.client.(*redis.ClusterClient); ok && isOutage(err) {
		// Left to itself the client looks for a new master once a minute.
		c.ReloadState(context.Background())
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
