package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

//go:embed pay.lua
var payLua string

var paySHA = redis.NewScript(payLua).Hash()

// maxPayments is the most debts in one call.
const maxPayments = 128

// payNode makes payments to one server of several, or to the one that the client finds.
func (s *Store) payNode(node *redis.Client, list []payment) error {
	b := s.only
	if b == nil {
		b = s.batcherOf(node)
	}
	if b.kind() == gcra.KeysApart {
		return rediskit.ErrKeysApart
	}
	for part := range slices.Chunk(list, maxPayments) {
		if err := s.payInTime(b, s.clientOf(node), part); err != nil {
			return err
		}
	}
	return nil
}

// payInTime makes payments, and stops waiting after the Timeout, whatever the client's own
// settings. A late reply is settled all the same.
func (s *Store) payInTime(b *batcher, client redis.UniversalClient, list []payment) (err error) {
	result := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil { // in a hook of the client
				result <- fmt.Errorf("panic: %v", p)
			}
		}()
		result <- s.sendPayments(b, client, list)
	}()
	select {
	case err = <-result:
	case <-time.After(s.timeout):
		err = s.timeoutError()
	}
	s.noteResult(err)
	return err
}

// sendPayments sends payments and settles them: in one script, or in one for each subject
// where the server may need that.
func (s *Store) sendPayments(b *batcher, client redis.UniversalClient, list []payment) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	parts := [][]payment{list}
	if b.kind() != gcra.OneKeyspace {
		parts = paymentsBySubject(list)
	}
	sent := s.clock.Now()
	cmds := make([]*redis.Cmd, len(parts))
	if len(parts) == 1 {
		cmds[0] = rediskit.Send(ctx, client, s.payArgs(list))
	} else {
		pipe := client.Pipeline()
		for i, part := range parts {
			cmds[i] = rediskit.Queue(ctx, pipe, s.payArgs(part))
		}
		rediskit.Exec(ctx, pipe)
	}
	for i, part := range parts {
		reply, replyErr := rediskit.Reply(rediskit.SendAgain(ctx, client, cmds[i], payLua), 2*len(part))
		if replyErr != nil {
			b.learnError(replyErr)
			err = replyErr
			continue
		}
		for j := range part {
			s.settle(&part[j], reply[2*j], reply[2*j+1], sent)
		}
	}
	return err
}

// paymentsBySubject divides payments among the subjects.
func paymentsBySubject(list []payment) (parts [][]payment) {
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
		args = append(args, p.id, p.more, p.least, p.room, p.top, p.ends, p.begins, p.previous)
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
	q.at, q.deadline = s.clock.Calendar(), s.clock.Now()+tat.Ticks(s.timeout)
	s.batcher(q).submit(q, false)
	go func() {
		<-q.done
		q.free()
	}()
}
