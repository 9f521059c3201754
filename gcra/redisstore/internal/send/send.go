// Package send sends requests to Redis: requests in, answers out. It decides which requests share a call, how that is
// sent and, on several servers, where to. It knows nothing of what is done with the answers.
package send

// The path of a request:
//
//  1. Sender.Send (send.go) gives it to the batcher of its server. If its subjects may be on several servers, it is divided,
//     and what its parts have taken is refunded unless all are admitted (split.go).
//  2. batcher.submit (batcher.go) puts it in line, or fails it at once while the breaker is open (breaker.go). As soon as a
//     batch may leave (pace.go), a sender, which is a goroutine or the caller itself, moves those that wait into one
//     (batch.go): one script, or one for each subject, by the kind of the server (way.go, way_node.go).
//  3. The script becomes one call of take.lua (script.go). If the server lacks its text, it is sent again with the text.
//  4. The reply, or the lack of one, gives each request an outcome (request.go). The batch is learned from and its callers
//     are answered, in batcher.end. A request of which nothing has run is sent again.
//
// When a script fails, its requests have its error; when a batch has no answer by the first deadline of its requests, all
// get an error at once, and a later reply is not read. Both may have been charged. A request whose time is up in line is
// not sent and gets an error. target.go is beside this path: it has the calls that carry no requests.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/kind"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// A Config says where requests go, and what is called with them.
type Config struct {
	Client  redis.UniversalClient
	Prefix  string // of the keys by which servers are tested
	Timeout time.Duration
	Clock   *buckets.Clock // learns the server's time from answers about quotas

	Before func(q *Request)                  // q is sent, perhaps not for the first time
	Learn  func(q *Request, sent, now int64) // q is back from a call; sent is the time before the call. Its caller goes on afterwards
	After  func(r Result)                    // a batch is over. If it has failed, its callers are answered after this, otherwise before
}

// A Result is what there is to say of a batch.
type Result struct {
	Server   string
	Requests int
	Takes    bool  // a charge of the batch takes: it is no peek and no refund
	Sent     int64 // the time before the call
	Took     int64 // ticks
	Err      error
	Open     bool // the breaker is not closed
}

// A Sender sends requests to one server, or to each of several.
type Sender struct {
	Config
	cluster  *redis.ClusterClient // the client, if it is one
	ring     *redis.Ring          // the client, if it is one
	only     *batcher             // of a single server
	inline   bool                 // the client of a single server returns when a context ends
	batchers sync.Map             // of several servers, by address
	routed   atomic.Bool          // the cluster's topology is known
	reloaded atomic.Int64         // when the topology was looked up
}

// New returns a sender.
func New(cfg Config) *Sender {
	s := &Sender{Config: cfg}
	switch c := cfg.Client.(type) {
	case *redis.ClusterClient:
		s.cluster = c
	case *redis.Ring:
		s.ring = c
	case *redis.Client:
		s.only = s.newBatcher(c.Options().Addr, c)
		s.inline = rediskit.BoundsCalls(c, cfg.Timeout)
	}
	return s
}

// Send returns when a request is answered, or with an error when the caller's context ends first. The request goes on then.
// Without an error the caller may free the request.
func (s *Sender) Send(ctx context.Context, q *Request) error {
	if n := len(q.Charges); n > maxCharges {
		return fmt.Errorf("redisstore: an admission of %d charges; want at most %d", n, maxCharges)
	}

	now := s.Clock.Now()
	q.deadline = now + tat.Ticks(s.Timeout)
	if slices.ContainsFunc(q.Charges, func(c buckets.Charge) bool { return c.Periods != nil }) {
		q.at = s.Clock.Calendar(now)
	}

	if s.only != nil || !q.several(redisstats.BySubject) {
		s.batcher(q).submit(q, s.inline && ctx.Done() == nil)
	} else {
		// It waits for all parts, and the caller may leave before that.
		go s.split(q)
	}

	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("redisstore: %w", ctx.Err())
	}
}

// batcher returns the batcher of the server of the request's first key.
func (s *Sender) batcher(q *Request) (b *batcher) {
	b, q.node = s.server(q.Keys[0])
	return b
}

// server returns the batcher of a key's server and, if that is one of several that is known, its client.
func (s *Sender) server(key string) (b *batcher, node *redis.Client) {
	if s.only != nil {
		return s.only, nil
	}
	node = s.node(key)
	return s.batcherOf(node), node
}

// batcherOf returns the batcher of one of several servers. If it is not known, node is nil, and the client finds it.
func (s *Sender) batcherOf(node *redis.Client) *batcher {
	// Until the topology is known, all requests share the batcher without a name.
	server := ""
	if node != nil {
		server = node.Options().Addr
	}
	b, ok := s.batchers.Load(server)
	if !ok {
		b, _ = s.batchers.LoadOrStore(server, s.newBatcher(server, node))
	}
	return b.(*batcher)
}

func (s *Sender) newBatcher(server string, client *redis.Client) *batcher {
	return &batcher{sender: s, Server: server, breaker: newBreaker(), pace: pace{window: minWindow, most: mostInFlight(client)}}
}

// clientOf is the client for scripts of one subject: a ring's shard has one, otherwise it is the store's, which finds the node
// of a cluster.
func (s *Sender) clientOf(node *redis.Client) redis.UniversalClient {
	if node != nil && s.ring != nil {
		return node
	}
	return s.Client
}

// node is the client of a key's server, or nil if it is not known. Each server has a batcher of its own, so that none
// waits for another.
func (s *Sender) node(key string) (node *redis.Client) {
	switch {
	case s.cluster != nil && !s.routed.Load():
		return nil // asking would block until the topology is loaded
	case s.cluster != nil:
		s.reload(topologyAge)
		node, _ = s.cluster.MasterForKey(context.Background(), key) // nil with an error
	case s.ring != nil:
		node, _ = s.ring.GetShardClientForKey(key)
	}
	return node
}

// topologyAge is how old the topology of a cluster may be, retryReload how old it may be when a batch fails.
const (
	topologyAge = 2 * time.Second
	retryReload = 200 * time.Millisecond
)

// reload looks up the topology of a cluster in the background, unless that was tried less than age ago.
func (s *Sender) reload(age time.Duration) {
	now, last := s.Clock.Now(), s.reloaded.Load()
	// Of all that come at once one looks it up.
	if now-last >= tat.Ticks(age) && s.reloaded.CompareAndSwap(last, now) {
		s.cluster.ReloadState(context.Background())
	}
}

// learnTopology learns from the result of a call. An answer shows that the topology is known. After an error of an outage
// it is looked up again, as another node may have taken over.
func (s *Sender) learnTopology(err error) {
	if err == nil {
		s.routed.Store(true)
	} else if s.cluster != nil && rediskit.Down(err) {
		s.reload(retryReload)
	}
}

// Servers are the states of the single server, or of each of several that was used since a time.
func (s *Sender) Servers(since int64) (list []redisstats.ServerState) {
	if s.only != nil {
		return []redisstats.ServerState{s.only.state()}
	}

	s.batchers.Range(func(_, v any) bool {
		if b := v.(*batcher); b.deadline.Load() >= since {
			list = append(list, b.state())
		}
		return true
	})
	slices.SortFunc(list, func(a, b redisstats.ServerState) int { return cmp.Compare(a.Server, b.Server) })
	return list
}

// Check runs take.lua on a key of a server, and tests the server until its kind is known.
func (s *Sender) Check(ctx context.Context, server redis.UniversalClient, key string) error {
	inc := tat.Ticks(time.Millisecond)
	room := 1000 * inc // for as many checks at the same time

	// EVAL too: calls need it only while the server lacks the script, but a server may reject it.
	for _, script := range [][2]string{{"eval", ordinary.text}, {"evalsha", ordinary.sha}} {
		cmd := rediskit.Send(ctx, server, []any{script[0], script[1], 1, key, inc, room})
		if _, err := rediskit.Reply(cmd, 1); err != nil {
			return err
		}
	}
	return s.settleKind(ctx, server)
}

// settleKind probes a server until its kind is known, and returns an error if the store does not use such a server. It
// gives up if several probes show nothing. Nodes of a cluster are not probed.
func (s *Sender) settleKind(ctx context.Context, server redis.UniversalClient) error {
	b := s.only
	if s.ring != nil {
		b = s.batcherOf(server.(*redis.Client))
	}
	if b == nil {
		return nil
	}

	// Two that agree would do. A failover or an eviction may spoil the others.
	for range 4 {
		probe := kind.NewProbe(s.Prefix)
		ordinary.run(ctx, server, nil, probe)

		b.mu.Lock()
		settled := b.single.Learn(probe, s.Clock.Now())
		b.mu.Unlock()
		if settled {
			break
		}
	}
	if b.Kind() == redisstats.Unusable {
		return rediskit.ErrKeysApart
	}
	return nil
}
