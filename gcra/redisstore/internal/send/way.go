package send

import (
	"context"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
)

// A way is how a batch is sent: which requests share a script, and where the scripts go. Each has a file of its own. The
// batcher of a server chooses by what it has learned of the server; nothing else depends on the choice.
type way interface {
	// shares is what the keys of one script have in common.
	shares(key string) string

	// send sends the scripts of a batch and waits for the answers. An error means that there are none.
	send(ctx context.Context, b *batch) error

	// notRun reports whether the error of a script says that nothing has run, so that the batcher sends its requests again
	// in another way.
	notRun(s *script) bool
}

var (
	whole     way = wayWhole{}
	bySubject way = waySubject{}
	byNode    way = wayNode{}
	apart     way = wayApart{}
)

// shown is what a server has shown of itself.
type shown struct {
	crossing crossing // of a node of a cluster

	// Of a single server or a shard, see keytest.go.
	kind  redisstats.Kind
	guess redisstats.Kind // the verdict of the last test; two that agree make the kind
	test  int64           // when to test again, by the store's clock
}

const (
	testAgain        = time.Second // after a test without a verdict
	testSettledAgain = time.Minute // of a server whose kind is known: it may have changed
)

// way chooses for a request. The caller holds b.mu.
func (b *batcher) way(q *Request, now int64) way {
	if b.sender.cluster != nil {
		if b.shown.crossing.allows(q, now) {
			return byNode
		}
		return bySubject
	}
	switch b.shown.kind {
	case redisstats.OneKeyspace:
		return whole
	case redisstats.Unusable:
		return apart
	}
	return bySubject
}

// Kind is what the server has shown.
func (b *batcher) Kind() redisstats.Kind {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sender.cluster == nil {
		return b.shown.kind
	}
	if b.Server == "" || b.sender.Clock.Now() < b.shown.crossing.until {
		return redisstats.BySubject
	}
	return redisstats.ByNode
}

// learn records what a batch has shown of the server. Requests that have not run go before those that wait.
func (b *batcher) learn(batch *batch, err error, now int64) {
	cluster := b.sender.cluster != nil
	if !cluster && batch.tested == nil && len(batch.undecided) == 0 {
		return
	}
	for _, q := range batch.undecided {
		q.Err, q.byClient = nil, true
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.Insert(b.waiting, 0, batch.undecided...)

	switch {
	case cluster:
		b.shown.crossing.learn(batch, err, now)
	case len(batch.undecided) > 0:
		b.shown.settle(redisstats.BySubject, now)
	case batch.tested != nil:
		b.shown.verdict(batch.tested, now)
	}
}

// settle sets the kind, and when to test again.
func (k *shown) settle(kind redisstats.Kind, now int64) {
	k.kind, k.guess, k.test = kind, kind, now+tat.Ticks(testSettledAgain)
}

// newTest returns a test of the server if one is due. The next is due in a second, unless verdict sets another
// time. Only a single server and the shards of a ring are tested. The caller holds b.mu.
func (b *batcher) newTest(now int64) *keyTest {
	testable := b == b.sender.only || b.sender.ring != nil && b.Server != ""
	if !testable || now < b.shown.test {
		return nil
	}
	b.shown.test = now + tat.Ticks(testAgain)
	return newKeyTest(b.sender.Prefix)
}

// verdict records the result of a test, and reports whether the kind is settled by it.
func (k *shown) verdict(t *keyTest, now int64) (settled bool) {
	kind, sure := t.verdict()

	switch {
	case sure, kind != "" && kind == k.guess:
		k.settle(kind, now)
		return true
	case kind != "":
		k.test = now // the next batch confirms it
	case k.kind != "":
		k.test = now + tat.Ticks(testSettledAgain)
	}

	k.guess = kind
	return false
}
