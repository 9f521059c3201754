package gcra

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// lane is the way to one server, on which rides share trips (group commit).
//
// A ride that finds the lane idle leaves at once. Those that come while
// batches are under way wait, and leave together as soon as one of these is
// back: the busier the lane, the larger its batches and the cheaper a check. No
// timer holds a batch back, and no goroutine stays once the lane is empty.
type lane struct {
	store *Redis

	mu       sync.Mutex
	waiting  []*ride
	underWay int // drivers
}

// maxUnderWay is how many batches of a lane may be under way: while Redis
// works on one, the next is being written and the one before read.
const maxUnderWay = 2

// board puts a ride on the lane. It never blocks.
func (l *lane) board(rd *ride) {
	rd.deadline = time.Now().Add(l.store.timeout())
	l.mu.Lock()
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
		l.send(b)
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
			rd.err = context.DeadlineExceeded
			rd.finish()
		} else if !b.add(rd, l.store.whole) {
			break
		}
		n++
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
}

// send runs the batch and lets its riders go.
func (l *lane) send(b *batch) {
	ctx := until{context.Background(), time.Now().Add(l.store.timeout())}
	m := l.store.mirror
	for i := range b.scripts[:b.n] {
		for _, rd := range b.scripts[i].rides {
			m.depart(rd)
		}
	}
	sent := m.now()
	b.run(ctx, l.store.client)
	for i := range b.scripts[:b.n] {
		for _, rd := range b.scripts[i].rides {
			if rd.err == nil {
				l.store.routed.Store(true)
			}
			m.learn(rd, sent)
			rd.finish()
		}
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
