package inflight

import (
	"container/list"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// shard is a part of the keys.
type shard struct {
	limiter *Limiter
	mu      sync.Mutex
	keys    map[string]*key
}

func (l *Limiter) shard(name string) *shard {
	return &l.shards[maphash.String(l.seed, name)%uint64(len(l.shards))]
}

// key returns the key with a name, or nil if the Limiter is closed.
func (s *shard) key(name string) *key {
	k := s.keys[name]
	switch {
	case s.limiter.closed.Load():
		return nil
	case k == nil:
		k = &key{shard: s, name: name}
		s.keys[name] = k
		s.limiter.keys.Add(1)
		s.limiter.sweeping.Do(func() { go s.limiter.sweep() })
	}
	return k
}

// key is what this server knows of a key. The mutex of its shard guards all of it.
//
//  1. held is the sum of holds, which are the slots that count, the oldest first.
//  2. At most one call is awaited. It has the number calling; a reply to any other is ignored.
//  3. A call carries the absolute count, and a number larger than all before it. Redis ignores a
//     number that is not larger than the field's. So whichever calls were lost, late or repeated, the
//     field says what the one with the largest number said.
//  4. confirmed is the count in Redis by the last answer. It is unknown from a call that failed until
//     one is answered: what that call wanted is perhaps held.
//  5. Unless confirmed is held, a call is awaited or due: at once, or after a failure by the next sweep.
//  6. A want is answered once, by want.answer. It is in waiting or in asked until then, and may stay
//     there for a while after. A want that was answered already takes no grant, and by rule 5 the next
//     call gives the grant back.
//  7. A key leaves its shard only if nothing is held, waits or is awaited, confirmed is 0, and no denial
//     is remembered.
type key struct {
	shard *shard
	name  string
	held  int
	holds list.List

	calling   int64
	asked     []*want // by the call that is awaited, in its order
	waiting   []*want // for the next
	confirmed int
	wrote     time.Time     // when the last call was sent that was answered
	lasts     time.Duration // its lease

	denied  time.Time     // when a call was last answered with a denial
	full    int           // fewer than this were free, and fewer than this below a want's most: see paused
	pause   time.Duration // after denied
	staying int           // sum of the wants that wait briefly after a denial
	timer   *time.Timer   // calls advance when the pause is over

	failures int       // in a row
	away     time.Time // no call before, and no decision
	cause    error     // why
}

const (
	unknown = -1 // confirmed

	askEvery  = 5 * time.Millisecond   // the least pause after a denial
	askAtMost = 100 * time.Millisecond // the longest, where only wants wait that were denied before
	awayFor   = 500 * time.Millisecond // after failures

	maxWants = 256 // in a call

	// serversKey has a slot for each server that uses this Redis. No client can name it.
	serversKey = "\x00servers"
)

// enter takes a new want.
func (k *key) enter(w *want, now time.Time) {
	if now.Before(k.away) {
		w.answer(nil, k.cause)
		return
	}
	k.waiting = append(k.waiting, w)
	k.pause = min(k.pause, askEvery)
	k.advance(now)
}

// paused reports whether Redis has denied so lately what needs no more room than the want, that the want is denied
// without a call.
func (k *key) paused(w *want, now time.Time) bool {
	return !w.last && w.most-w.n <= k.full && now.Before(k.denied.Add(k.pause))
}

// advance sends the next call if one is due, or sees to it that advance is called later.
func (k *key) advance(now time.Time) {
	for _, w := range k.waiting {
		if !w.answered() && !w.denied && (!k.fits(w, 0) || k.paused(w, now)) {
			w.deny() // by what is known: no call
		}
	}
	k.waiting = slices.DeleteFunc(k.waiting, (*want).answered)

	switch l := k.shard.limiter; {
	case l.life.Err() != nil:
	case l.store == nil:
		k.advanceMemory()
	case k.calling == 0 && !now.Before(k.away):
		k.advanceRedis(now)
	}
	k.forget(now)
}

// advanceMemory grants what fits.
func (k *key) advanceMemory() {
	for _, w := range k.waiting {
		if k.fits(w, 0) {
			w.answer(k.hold(w.n, w.counts), nil)
		}
	}
	k.waiting = slices.DeleteFunc(k.waiting, (*want).answered)
	k.confirmed = k.held
}

func (k *key) advanceRedis(now time.Time) {
	// What is released goes at once, and wants go with it. Otherwise they wait for the end of a pause.
	due, later := k.held != k.confirmed, false
	for _, w := range k.waiting {
		due = due || k.fits(w, 0) && !k.paused(w, now)
		later = later || k.fits(w, 0)
	}

	switch {
	case due:
		sum, left := 0, []*want(nil)
		for _, w := range k.waiting {
			if len(k.asked) < maxWants && k.fits(w, sum) {
				k.asked, sum = append(k.asked, w), sum+w.n
			} else {
				left = append(left, w)
			}
		}
		k.waiting = left
		go k.shard.limiter.write([]*call{k.call(now)})
	case later:
		k.wake(k.denied.Add(k.pause).Sub(now))
	}
}

// fits reports whether a want would leave this server alone within its most.
func (k *key) fits(w *want, beside int) bool { return k.held+beside+w.n <= w.most }

// wake has advance called after a time.
func (k *key) wake(after time.Duration) {
	if k.timer != nil {
		k.timer.Reset(after)
		return
	}
	k.timer = time.AfterFunc(after, func() {
		k.shard.mu.Lock()
		defer k.shard.mu.Unlock()
		k.advance(time.Now())
	})
}

// call returns a call with the wants in asked.
func (k *key) call(now time.Time) *call {
	c := &call{name: k.name, number: k.shard.limiter.number.Add(1), held: k.held, lease: k.lease(now), wants: k.asked, sent: now}
	c.answer = func(granted string, err error) { k.answer(c, granted, err) }
	k.calling = c.number
	return c
}

// answer takes the answer to a call, see store.
func (k *key) answer(c *call, granted string, err error) {
	k.shard.mu.Lock()
	defer k.shard.mu.Unlock()
	// A later call is under way, and knows more.
	if k.calling != c.number {
		return
	}

	now, asked := time.Now(), k.asked
	k.calling, k.asked = 0, nil
	if err != nil {
		k.failed(asked, now, err)
	} else {
		k.failures, k.wrote, k.lasts, k.confirmed = 0, c.sent, c.lease, c.held
		if len(asked) > 0 {
			k.decide(asked, granted, now)
		} else if n, err := strconv.ParseInt(granted, 10, 64); err == nil && k.name == serversKey {
			k.shard.limiter.servers.Store(n)
		}
	}
	k.advance(now)
}

func (k *key) decide(asked []*want, granted string, now time.Time) {
	fresh, full := false, -1
	for i, w := range asked {
		switch {
		case granted[i] == '1':
			k.confirmed += w.n
			if !w.answered() {
				w.answer(k.hold(w.n, w.counts), nil)
			}
		case !w.answered():
			fresh = fresh || !w.denied
			full = max(full, w.most-w.n)
			w.deny()
			k.waiting = append(k.waiting, w)
		}
	}
	if full < 0 {
		return
	}

	// The next pause is longer if nobody new has asked.
	k.denied, k.full, k.pause = now, full, min(2*max(k.pause, askEvery), askAtMost)
	if fresh {
		k.pause = askEvery
	}
}

// failed notes that a call has failed, or that nobody knows. A want may be asked again: the count of the next call does
// not contain it.
func (k *key) failed(asked []*want, now time.Time, err error) {
	if len(asked) == 0 && k.confirmed == k.held {
		if now.Sub(k.wrote) > k.lasts/2 {
			k.shard.limiter.reportFailure(err)
		}
		return // it was to renew the lease: the next sweep does
	}
	k.confirmed = unknown
	k.waiting = slices.Concat(asked, k.waiting) // the call may still read asked
	if k.failures++; k.failures == 1 {
		return // once more at once: it may have been the connection
	}

	k.away, k.cause = now.Add(awayFor), fmt.Errorf("%w: %w", errUndecided, err)
	for _, w := range k.waiting {
		if w.denied && w.patience == briefly {
			w.answer(nil, ErrFull)
		} else {
			w.answer(nil, k.cause)
		}
	}
	k.shard.limiter.reportFailure(err)
}

// forget removes the key from its shard if nothing is known of it.
func (k *key) forget(now time.Time) {
	known := k.held != 0 || k.confirmed != 0 || k.calling != 0 || len(k.waiting) > 0 || now.Before(k.denied.Add(k.pause))
	if known || k.shard.keys[k.name] != k {
		return
	}
	delete(k.shard.keys, k.name)
	k.shard.limiter.keys.Add(-1)
}

// hold adds a slot.
func (k *key) hold(n int, c *counts) *hold {
	h := &hold{key: k, n: n, counts: c, since: time.Now()}
	h.at = k.holds.PushBack(h)
	k.held += n
	c.held.Add(1)
	return h
}

func (w *want) answered() bool { return w.hold != nil || w.err != nil }

// answer ends the want, unless it has an answer.
func (w *want) answer(h *hold, err error) {
	if w.answered() {
		return
	}
	w.hold, w.err = h, err
	if errors.Is(err, ErrFull) {
		w.counts.denied.Add(1)
	}
	if w.denied && w.patience == briefly {
		w.key.staying -= w.n
	}
	if w.timer != nil { // it waits forever
		w.timer.Stop()
	}
	if w.done != nil {
		close(w.done)
	}
}

// deny ends the want, or lets it wait for another answer. No more wait briefly than could get a slot at once.
func (w *want) deny() {
	k := w.key
	switch {
	case w.patience == forever:
		w.denied = true
	case w.patience == patient, w.last, !w.denied && k.staying+w.n > w.most:
		w.answer(nil, ErrFull)
	case !w.denied:
		w.denied = true
		k.staying += w.n
		w.timer.Reset(time.Duration(briefly))
	}
}

// expire is called when the time of a want is over.
func (w *want) expire() {
	k := w.key
	k.shard.mu.Lock()
	defer k.shard.mu.Unlock()
	switch now := time.Now(); {
	case w.answered():
	case !w.denied:
		w.answer(nil, fmt.Errorf("%w: %w", errUndecided, rediskit.NoAnswer(k.shard.limiter.cfg.Timeout)))
	case slices.Contains(k.asked, w):
		w.last = true
	case w.last || k.shard.limiter.store == nil || !k.fits(w, 0) || now.Before(k.away):
		w.answer(nil, ErrFull)
	default: // once more, and then it is over
		w.last = true
		w.timer.Reset(k.shard.limiter.cfg.Timeout)
	}
	k.advance(time.Now())
}
