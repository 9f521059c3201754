package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// batcher returns the batcher for a request: that of its first key's server.
func (s *Store) batcher(q *request) *batcher {
	if s.only != nil {
		return s.only
	}
	q.node = s.node(q.ops[0].key)
	return s.batcherOf(q.node)
}

// batcherOf returns the batcher of one of several servers; nil is the one that the client
// finds.
func (s *Store) batcherOf(node *redis.Client) *batcher {
	server := ""
	if node != nil {
		server = node.Options().Addr
	}
	b, ok := s.batchers.Load(server)
	if !ok {
		b, _ = s.batchers.LoadOrStore(server, s.newBatcher(server))
	}
	return b.(*batcher)
}

func (s *Store) onCluster() bool {
	_, ok := s.client.(*redis.ClusterClient)
	return ok
}

func (s *Store) onRing() bool {
	_, ok := s.client.(*redis.Ring)
	return ok
}

// clientOf is the client for scripts of one subject: that of a shard of a ring, otherwise the store's own, which finds the
// node of a cluster.
func (s *Store) clientOf(node *redis.Client) redis.UniversalClient {
	if node != nil && s.onRing() {
		return node
	}
	return s.client
}

func (s *Store) newBatcher(server string) *batcher {
	return &batcher{store: s, server: server, breaker: newBreaker(s, server)}
}

// node is the client of a key's server, or nil if it is not known. It chooses the
// batcher, so that no server waits for another.
func (s *Store) node(key string) (node *redis.Client) {
	var err error
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		if !s.routed.Load() {
			return nil // asking would block until the topology is loaded
		}
		s.reload(topologyAge)
		node, err = c.MasterForKey(context.Background(), key)
	case *redis.Ring:
		node, err = c.GetShardClientForKey(key)
	}
	if err != nil {
		return nil
	}
	return node
}

// topologyAge is how old the topology of a cluster may be, retryReload how old it
// may be when a batch fails.
const (
	topologyAge = 2 * time.Second
	retryReload = 200 * time.Millisecond
)

// reload looks up the topology of a cluster in the background, unless that was done
// less than age ago, for example because no node answers.
func (s *Store) reload(age time.Duration) {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return
	}
	now, last := s.clock.Now(), s.reloaded.Load()
	if now-last >= tat.Ticks(age) && s.reloaded.CompareAndSwap(last, now) {
		c.ReloadState(context.Background())
	}
}

// noteResult learns from a batch about the topology: an answer shows that it is
// known, and after an outage another node may have taken over.
func (s *Store) noteResult(err error) {
	if err == nil {
		s.routed.Store(true)
	} else if rediskit.Down(err) {
		s.reload(retryReload)
	}
}

// split answers a request whose subjects may be on different servers or in different slots by one request
// for each subject, all at once. If one is denied or fails, split first refunds what
// the others have taken: for the time of a call a subject looks more charged than it
// is, never less.
func (s *Store) split(whole *request) {
	parts, indexes := whole.bySubject()
	for _, p := range parts {
		s.batcher(p).submit(p, false)
	}
	whole.admitted = true
	for i, p := range parts {
		<-p.done
		whole.err = errors.Join(whole.err, p.err)
		whole.admitted = whole.admitted && (p.admitted || p.err != nil)
		for j, index := range indexes[i] {
			whole.ops[index].Charge = p.ops[j].Charge
		}
	}
	if !whole.admitted || whole.err != nil {
		s.refundParts(parts, whole.deadline)
	}
	for _, p := range parts {
		p.free()
	}
	whole.finish()
}

// bySubject divides a request into a part for each subject, and returns the indexes
// that the ops of each part have in the request.
func (q *request) bySubject() (parts []*request, indexes [][]int) {
	byTag := make(map[string]int)
	for i, o := range q.ops {
		tag := hashTag(o.key)
		j, known := byTag[tag]
		if !known {
			j = len(parts)
			byTag[tag] = j
			parts, indexes = append(parts, newRequest(nil, q.refund)), append(indexes, nil)
			parts[j].deadline, parts[j].at = q.deadline, q.at
		}
		parts[j].ops = append(parts[j].ops, o)
		indexes[j] = append(indexes[j], i)
	}
	return parts, indexes
}

// refundParts refunds what the parts of an admission have taken, and waits until the
// deadline. If a refund fails, the subject stays charged.
func (s *Store) refundParts(parts []*request, deadline int64) {
	now := s.clock.Now()
	var refunds []*request
	for _, p := range parts {
		refund := newRequest(nil, true)
		for _, o := range p.ops {
			if o.Inc > 0 && p.taken(&o) {
				o.Undo(o.Fits(o.Ahead))
				refund.ops = append(refund.ops, o)
			}
		}
		if len(refund.ops) == 0 {
			continue
		}
		refund.at = p.at
		refund.deadline = now + tat.Ticks(s.timeout)
		refunds = append(refunds, refund)
		s.batcher(refund).submit(refund, false)
	}
	timeout := time.After(tat.Duration(deadline - now))
	for _, refund := range refunds {
		select {
		case <-refund.done:
			refund.free()
		case <-timeout:
			return // the refunds go on
		}
	}
}
