package redisstore

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// payAgain is the least time between two rounds of payments. What is beyond the clamp
	// of a bucket is paid as it drains, see debt.next.
	payAgain = 25 * time.Millisecond

	// payRetry is the time to the next round after one that failed, or had nothing to
	// pay yet. A batch that Redis answers starts it earlier.
	payRetry = 250 * time.Millisecond

	// maxRound is the most debts in a round. Those that are left out have a later turn.
	maxRound = 1 << 12
)

// payLater starts payLoop unless it runs.
func (s *Store) payLater() {
	d := &s.debts
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paying || d.closed {
		return
	}
	d.paying, d.answered = true, make(chan struct{}, 1)
	go s.payLoop(d.answered)
}

// payNow starts a round early if there are debts: Redis has answered a batch.
func (s *Store) payNow() {
	d := &s.debts
	if d.n.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wake()
}

func (d *debts) wake() {
	select {
	case d.answered <- struct{}{}:
	default: // awake already, or nobody pays
	}
}

// payLoop pays in rounds as long as there are debts. It does not ask the breaker: that
// keeps callers from waiting for a server that fails, and nobody waits here. So when some
// packets arrive, the debts are paid while the breaker is still open.
func (s *Store) payLoop(answered <-chan struct{}) {
	pause, closed := payRetry, false
	for s.debts.some() {
		select {
		case <-answered:
		case <-time.After(pause):
		}
		paid, err := s.payRound()
		before := closed
		// A server that has just left a ring is closed too. The next round does not go there.
		if closed = errors.Is(err, redis.ErrClosed); closed && before {
			s.debts.close(s.clock.Now())
			continue
		}
		time.Sleep(payAgain)
		if pause = payRetry; paid && err == nil {
			pause = 0
		}
	}
}

// some reports whether there are debts. If not, it notes that payLoop ends.
func (d *debts) some() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paying = len(d.of) > 0
	return d.paying
}

// payRound tries once to pay, to all servers at the same time. It reports whether there
// was something to pay.
func (s *Store) payRound() (tried bool, err error) {
	byNode := make(map[*redis.Client][]payment)
	list := s.debts.payments(s.clock.Now(), maxRound)
	for _, p := range list {
		node := s.node(p.key)
		byNode[node] = append(byNode[node], p)
	}
	errs := make(chan error, len(byNode))
	for node, list := range byNode {
		go func() { errs <- s.payNode(node, list) }()
	}
	for range byNode {
		err = errors.Join(err, <-errs)
	}
	return len(list) > 0, err
}
