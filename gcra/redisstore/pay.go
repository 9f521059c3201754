package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

//go:embed pay.lua
var payLua string

var paySHA = func() string {
	sum := sha1.Sum([]byte(payLua))
	return hex.EncodeToString(sum[:])
}()

const (
	// payAgain is the time between two rounds of payments while Redis answers: what is
	// beyond the clamp of a bucket is paid as it drains.
	payAgain = 25 * time.Millisecond

	// payRetry is the time to the next round after one that failed. An answered batch
	// starts it earlier.
	payRetry = 100 * time.Millisecond

	// maxPayments is the most debts in one call.
	maxPayments = 128
)

// payLater sets the timer of the next round, unless a round ends with doing so.
func (s *Store) payLater() {
	d := &s.debts
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.paying && !d.due {
		d.next = 0
		d.setTimer(payRetry, s.pay)
	}
}

func (d *debts) setTimer(after time.Duration, pay func()) {
	switch {
	case d.closed:
	case d.timer == nil:
		d.timer, d.due = time.AfterFunc(after, pay), true
	default:
		d.timer.Reset(after)
		d.due = true
	}
}

// payNow starts a round if there are debts: Redis has answered.
func (s *Store) payNow() {
	d := &s.debts
	if d.n.Load() == 0 {
		return
	}
	d.mu.Lock()
	start := !d.paying && !d.closed && s.clock.Now() >= d.next
	d.mu.Unlock()
	if start {
		go s.pay()
	}
}

// pay is a round: it tries to pay each debt once. There is one at a time.
func (s *Store) pay() {
	d := &s.debts
	d.mu.Lock()
	if d.paying || d.closed {
		d.mu.Unlock()
		return
	}
	d.paying, d.due = true, false
	d.mu.Unlock()

	err := s.payAll(d.payments(s.clock.Now()))
	if errors.Is(err, redis.ErrClosed) {
		d.close()
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	d.paying = false
	if d.n.Load() == 0 {
		return
	}
	if err != nil {
		d.next = 0
		d.setTimer(payRetry, s.pay)
	} else {
		d.next = s.clock.Now() + tat.Ticks(payAgain)
		d.setTimer(payAgain, s.pay)
	}
}

// payAll makes the payments, to all servers at once.
func (s *Store) payAll(list []payment) error {
	byServer := make(map[*batcher][]payment)
	nodes := make(map[*batcher]redis.UniversalClient)
	for _, p := range list {
		q := request{ops: []op{{key: p.key}}}
		b := s.batcher(&q)
		byServer[b] = append(byServer[b], p)
		if nodes[b] = s.client; q.node != nil {
			if _, ring := s.client.(*redis.Ring); ring {
				nodes[b] = q.node
			}
		}
	}
	errs := make(chan error, len(byServer))
	for b, list := range byServer {
		go func() {
			var err error
			for part := range slices.Chunk(list, maxPayments) {
				if err = s.payServer(b, nodes[b], part); err != nil {
					break
				}
			}
			errs <- err
		}()
	}
	var all error
	for range byServer {
		all = errors.Join(all, <-errs)
	}
	return all
}

// payServer makes payments to one server. Its breaker decides whether they are sent, and
// hears of the result: while all requests are denied locally, nothing else may find that
// the server answers.
func (s *Store) payServer(b *batcher, client redis.UniversalClient, list []payment) error {
	done, err := b.breaker.allow()
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil { // in a hook of the client
				result <- fmt.Errorf("panic: %v", p)
			}
		}()
		result <- s.sendPayments(client, list)
	}()
	select {
	case err = <-result:
	case <-time.After(s.timeout()): // a late reply is settled all the same
		err = s.timeoutError()
	}
	b.breaker.report(done, err)
	s.noteResult(err)
	return err
}

// sendPayments sends the payments: in one script or, on a cluster, in one for each subject.
func (s *Store) sendPayments(client redis.UniversalClient, list []payment) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout())
	defer cancel()
	parts := [][]payment{list}
	switch client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		parts = bySubject(list)
	}
	cmds := make([]*redis.Cmd, len(parts))
	sent := s.clock.Now()
	if len(parts) == 1 {
		cmds[0] = rediskit.Send(ctx, client, s.payArgs(parts[0]))
	} else {
		pipe := client.Pipeline()
		for i, part := range parts {
			cmds[i] = rediskit.NewCmd(ctx, s.payArgs(part))
			_ = pipe.Process(ctx, rediskit.Once{Cmd: cmds[i]}) // queues; the answer is the command's
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
	for i, part := range parts {
		reply, replyErr := rediskit.Reply(rediskit.SendAgain(ctx, client, cmds[i], payLua), 2*len(part))
		if replyErr != nil {
			if err == nil || rediskit.Down(replyErr) {
				err = replyErr
			}
			continue
		}
		for j := range part {
			s.settle(&part[j], reply[2*j], reply[2*j+1], sent)
		}
	}
	return err
}

// bySubject divides payments among the subjects.
func bySubject(list []payment) (parts [][]payment) {
	index := make(map[string]int)
	for _, p := range list {
		tag := hashTag(p.key)
		i, known := index[tag]
		if !known {
			i = len(parts)
			index[tag] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], p)
	}
	return parts
}

func (s *Store) payArgs(list []payment) []any {
	args := []any{"evalsha", paySHA, 2 * len(list)}
	for i := range list {
		args = append(args, list[i].key, list[i].key+s.debts.payer)
	}
	for _, p := range list {
		args = append(args, p.id, p.more, p.least, p.top, p.ends)
	}
	return args
}

// settle records the reply to a payment. sent is the time before the call.
func (s *Store) settle(p *payment, paid, ahead, sent int64) {
	if ahead < 0 {
		s.debts.over(p)
		return
	}
	c := s.denials
	base := sent
	if p.ends > 0 {
		base = s.clock.OnScale(p.ends)
	}
	shard := c.set.Shard(p.hash)
	c.set.Lock(shard)
	now := s.clock.Now()
	ended, refund := s.debts.settle(p, paid, base+ahead, now)
	fresh, ok := newFreshness(now, now-sent)
	if state := &c.shards[shard]; ended && ok && refund.Inc == 0 && state.refunds == 0 && sent >= state.refunded {
		c.set.Put(p.hash, base+ahead, int64(fresh), now)
	}
	c.set.Unlock(shard)
	if refund.Inc < 0 {
		s.refundPayment(op{Charge: refund, key: p.key})
	}
}

// refundPayment refunds what was paid and is no longer owed.
func (s *Store) refundPayment(o op) {
	q := newRequest([]op{o}, true)
	q.at, q.deadline = s.clock.Calendar(), s.clock.Now()+tat.Ticks(s.timeout())
	s.batcher(q).submit(q, false)
	go func() {
		<-q.done
		q.free()
	}()
}
