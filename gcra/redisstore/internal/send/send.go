// Package send sends requests to Redis: requests in, answers out. It decides which requests share a call, how that is
// sent and, on several servers, where to. It knows nothing of what is done with the answers.
package send

// The journey of a request, which is an admission or a refund of some charges, from Take to its answer:
//
//  1. Sender.Send (send.go) puts it in the line of its server (lines.go). Where its subjects may be on several servers, it is
//     split into a part for each subject, here or when it is loaded; unless all parts are admitted, what they have taken is
//     refunded (split.go).
//  2. It waits in line. When the pace allows it (pace.go), a carrier, which is a goroutine or the caller itself, loads the
//     requests that wait into a batch (line.go): one run of take.lua for all, or one for each subject, by the kind of the server.
//  3. The batch makes a trip (batch.go): its runs are sent together, and those for which the server lacks the script once more
//     with its text (script.go).
//  4. Each request reads its numbers in the reply (request.go). The line learns from the batch, and the callers are answered.
//
// A request fails if
//
//   - the breaker is open (breaker.go), or its time is up while it waits: it is not sent.
//   - its run fails. The request has the error, and may have been charged.
//   - its batch is late: it is not back by the first deadline of its requests. They may have been charged, and a later reply is
//     not read.
//
// A request of which nothing has run goes back in line after a pause, and fails only when it has no time left: a key is on another
// node, the server takes no keys of several subjects, or its clock is in another period of a quota (three trips at most).
//
// target.go is beside this: runs of other scripts.

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
	Prefix  string // of the keys of probes
	Timeout time.Duration
	Clock   *buckets.Clock // learns the server's time from answers about quotas

	Before func(q *Request)                  // before each trip of q
	Learn  func(q *Request, sent, now int64) // after each trip of q; sent is the time before it. Its caller goes on afterwards
	After  func(r Result)                    // after each trip of a batch. If it has failed, its callers go on afterwards
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

	// A single server may take all subjects in one run, as is known when a batch is loaded.
	if s.only != nil || !q.several(redisstats.BySubject) {
		s.line(q.Keys[0]).submit(now, s.inline && ctx.Done() == nil, q)
	} else {
		// In another goroutine: the caller may leave before all parts are answered.
		go s.split(q)
	}

	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("redisstore: %w", ctx.Err())
	}
}
