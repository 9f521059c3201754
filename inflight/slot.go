package inflight

import (
	"container/list"
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// Slot is one unit of work that runs. Release it when the work is over.
type Slot struct {
	hold    *hold
	outer   *Slot // of the limit around this one, for the same request
	cleanup runtime.Cleanup
}

// newSlot returns a Slot that is released, and logged, when it is garbage.
func newSlot(h *hold) *Slot {
	if h == nil {
		return nil
	}
	s := &Slot{hold: h}
	s.cleanup = runtime.AddCleanup(s, (*hold).lost, h)
	return s
}

// Release gives the slot back. It never waits, does nothing the second time, and may be called
// on nil.
func (s *Slot) Release() {
	for ; s != nil; s = s.outer {
		s.cleanup.Stop()
		s.hold.release()
	}
}

// hold is a slot as its key counts it. The mutex of the key's shard guards it.
type hold struct {
	key    *key
	n      int
	since  time.Time
	counts *counts
	at     *list.Element // in the key's list; nil when it counts no longer
}

func (h *hold) release() { h.endNow("") }

// lost is called when a Slot is garbage.
func (h *hold) lost() { h.endNow("a slot was never released: its owner has forgotten it") }

func (h *hold) endNow(fault string) {
	h.key.shard.mu.Lock()
	defer h.key.shard.mu.Unlock()
	h.end(fault)
	h.key.advance(time.Now())
}

// end takes the slot out of its key, and logs the fault, if there is one. The second time it does nothing.
func (h *hold) end(fault string) {
	if h.at == nil {
		return
	}
	h.key.holds.Remove(h.at)
	h.at = nil
	h.key.held -= h.n
	h.counts.held.Add(-1)

	if fault != "" { // a slow log does not hold up the key
		age := time.Since(h.since).Round(time.Second).String()
		go h.key.shard.limiter.log.Report(diag.SlotNotReleased, "", fault, "key", h.key.name, "age", age)
	}
}

// want is a slot that somebody asks for. The mutex of the key's shard guards what changes.
type want struct {
	key      *key
	n, most  int
	patience patience
	counts   *counts
	timer    *time.Timer // calls expire

	denied bool // once at least; it waits for another answer
	last   bool // the next answer is final

	done chan struct{} // closed when hold or err is set; nil while nobody waits
	hold *hold
	err  error
}

// patience is how long a want that was denied waits for a slot.
type patience time.Duration

const (
	patient = patience(0)                     // it does not wait
	briefly = patience(50 * time.Millisecond) // a request, whose client may have the last response before its slot is free
	forever = patience(1<<63 - 1)             // until its context ends
)

// acquire waits for a decision about a want, and for a slot as long as its patience says.
func (l *Limiter) acquire(ctx context.Context, name string, n, most int, p patience, c *counts) (*hold, error) {
	if n < 1 || n > most {
		return nil, fmt.Errorf("inflight: %d slots of a key that has %d; want 1 to %d", n, most, most)
	}
	w := &want{n: n, most: most, patience: p, counts: c}
	s := l.shard(name)
	s.mu.Lock()
	if w.key = s.key(name); w.key == nil {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	if p != forever {
		w.timer = time.AfterFunc(l.cfg.Timeout, w.expire)
	}
	w.key.enter(w, time.Now())
	if w.answered() {
		s.mu.Unlock()
		return w.hold, w.err
	}
	w.done = make(chan struct{})
	s.mu.Unlock()

	select {
	case <-w.done:
	case <-ctx.Done():
		s.mu.Lock()
		w.answer(nil, ctx.Err()) // unless it has one
		w.key.advance(time.Now())
		s.mu.Unlock()
	}
	return w.hold, w.err
}
