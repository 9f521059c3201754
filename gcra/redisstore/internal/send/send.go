// Package send sends requests to Redis: requests in, answers out. It decides which requests share a call, how that is
// sent and, on several servers, where to. It knows nothing of what is done with the answers.
package send

// The journey of a request, which is an admission or a refund, from Take to its answer:
//
//  1. Sender.Send (send.go) puts it in the line of its server, which lines.go finds. If its subjects may be on several servers,
//     it is divided, and what its parts have taken is refunded unless all are admitted (split.go).
//  2. It waits in line (line.go), or fails at once while the breaker is open (breaker.go). As soon as a batch may leave
//     (pace.go), a carrier, which is a goroutine or the caller itself, loads those that wait into a batch (batch.go): one script
//     for all, or one for each subject, by the kind of the server. If its time is up by then, it fails and is not sent.
//  3. The carrier makes a trip: each script is one run of take.lua (script.go). If the server lacks its text, it is sent again
//     with the text.
//  4. The reply, or the lack of one, gives the request an outcome (request.go). The line learns from the batch, and the
//     callers are answered. A request of which nothing has run goes back in line.
//
// When a script fails, its requests have its error. When a batch is not back by the first deadline of its requests, all fail at
// once, and a later reply is not read. Either may have been charged. target.go is beside this: runs of other scripts.

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
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
	Learn  func(q *Request, sent, now int64) // q is back from a trip; sent is the time before it. Its caller goes on afterwards
	After  func(r Result)                    // a batch is over. If it has failed, its callers are answered after this, otherwise before
}

// A Result is what there is to say of a batch.
type Result struct {
	Server   string
	Requests int
	Took     int64 // ticks
	Err      error
	Open     bool // the breaker is not closed
}

// A Sender sends requests to one server, or to each of several.
type Sender struct {
	Config
	only   *line // of a single server
	inline bool  // the client of a single server returns when a context ends

	// Of several servers.
	cluster  *redis.ClusterClient // the client, if it is one
	lines    sync.Map             // by address
	routed   atomic.Bool          // the cluster's topology is known
	reloaded atomic.Int64         // when the topology was looked up
}

// New returns a sender.
func New(cfg Config) *Sender {
	s := &Sender{Config: cfg, inline: rediskit.BoundsCalls(cfg.Client, cfg.Timeout)}
	s.cluster, _ = cfg.Client.(*redis.ClusterClient)
	if single, ok := cfg.Client.(*redis.Client); ok {
		s.only = s.lineOf(single)
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
	q.at = s.Clock.Calendar(now)

	if s.only != nil || !q.several(redisstats.BySubject) {
		s.line(q.Keys[0]).submit(now, s.inline && ctx.Done() == nil, q)
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
