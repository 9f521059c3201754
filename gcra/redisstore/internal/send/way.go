package send

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// A way is how a batch is sent: which requests share a script, and where the scripts go. The batcher of a server chooses by
// the kind of the server; nothing else depends on the choice.
type way interface {
	// shares is what the keys of one script have in common.
	shares(key string) string

	// send sends the scripts of a batch and waits for the answers. An error means that there are none.
	send(ctx context.Context, b *batch) error

	// notRun reports whether the error of a script says that nothing has run, so that the batcher sends its requests again
	// in another way.
	notRun(s *script, err error) bool
}

var (
	whole     way = wayWhole{}
	bySubject way = waySubject{}
	byNode    way = wayNode{}
	apart     way = wayApart{}
)

// way chooses for a request. The caller holds b.mu.
func (b *batcher) way(q *Request, now int64) way {
	if b.sender.cluster != nil {
		// What a node has sent back goes by the client, which follows MOVED and ASK.
		if q.node != nil && q.sent == 0 && b.crossing.Kind(now) == redisstats.ByNode {
			return byNode
		}
		return bySubject
	}

	switch b.single.Kind() {
	case redisstats.OneKeyspace:
		return whole
	case redisstats.Unusable:
		return apart
	}
	return bySubject
}

// waySubject works wherever the keys of one subject are on one server: one script for each subject, in a pipeline. It is
// for one endpoint in front of a cluster, for nodes of a cluster that run no script for several slots, and for a server
// that has not shown yet what it is.
type waySubject struct{}

func (waySubject) shares(key string) string { return Tag(key) }

func (waySubject) send(ctx context.Context, b *batch) error {
	if b.n == 1 && b.probe == nil {
		b.scripts[0].send(ctx, b.client)
		return nil
	}

	pipe := b.client.Pipeline()
	for i := range b.scripts[:b.n] {
		s := &b.scripts[i]
		s.cmd = rediskit.Queue(ctx, pipe, s.args)
	}
	// In the same pipeline, so the probe costs no round trip.
	if b.probe != nil {
		b.probe.Queue(ctx, pipe)
	}
	rediskit.Exec(ctx, pipe)

	var again redis.Pipeliner // one connection for all: others might have to be dialled
	for i := range b.scripts[:b.n] {
		if s := &b.scripts[i]; redis.HasErrorPrefix(s.cmd.Err(), "NOSCRIPT") {
			if again == nil {
				again = b.client.Pipeline()
			}
			s.cmd = rediskit.Queue(ctx, again, slices.Concat([]any{"eval", ordinary.text}, s.cmd.Args()[2:]))
		}
	}
	if again != nil {
		rediskit.Exec(ctx, again)
	}
	return nil
}

func (waySubject) notRun(*script, error) bool { return false }

// wayWhole is for one keyspace: one script for all subjects of the batch.
type wayWhole struct{ waySubject }

func (wayWhole) shares(string) string { return "" }

// notRun is true when a server has become a cluster.
func (wayWhole) notRun(_ *script, err error) bool { return redis.HasErrorPrefix(err, "CROSSSLOT") }

// wayApart is for an endpoint that runs scripts away from their keys: nothing is sent but, now and then, the probe. Each
// bucket would exist on several servers, and requests with other policies would not see what was charged.
type wayApart struct{ wayWhole }

func (wayApart) send(ctx context.Context, b *batch) error {
	if b.probe != nil {
		b.probe.Run(ctx, b.client)
	}
	return rediskit.ErrKeysApart
}
