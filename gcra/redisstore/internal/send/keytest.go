package send

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

//go:embed keytest.lua
var keyTestFile string

// keyTestLua is the script without its comment, as it is sent many times.
var _, keyTestLua, _ = strings.Cut(keyTestFile, "\n\n")

// A keyTest finds out whether scripts on a server see the keys that other scripts have written. One script writes many
// keys at once. Before that, a SET for each key but the first has written another value there, and after it a script
// for each key alone reads the key:
//
//   - The value of the one script: both work on the same server.
//   - The value from before: the one script has written elsewhere, or not at all. This does not happen by chance: a key
//     that was evicted or lost in a failover has no value.
//
// The keys are read by scripts, as a replica may answer MGET, and with a value from before if it lags.
//
// Some keys have the hash tag of the first key, others have tags of their own. The keys are new in each test, and the last
// script for each deletes it.
type keyTest struct {
	keys        []string     // the first decides where the script for all runs
	together    *redis.Cmd   // the script for all keys
	first       *redis.Cmd   // reads the first key
	same, other []*redis.Cmd // read the keys with its tag, and those with others
}

const (
	// testKeys is how many keys have the first key's tag, and how many have another. If a proxy divides keys equally
	// between two servers, the keys of a test are on one of them by chance once in 4,096 times; two tests must agree.
	testKeys = 12

	testAlone, testTogether = "alone", "together"
)

func newKeyTest(prefix string) *keyTest {
	id := strconv.FormatUint(rand.Uint64(), 36)
	t := &keyTest{keys: []string{fmt.Sprintf("%s{~test%s}:0", prefix, id)}}
	for i := range testKeys {
		t.keys = append(t.keys, fmt.Sprintf("%s{~test%s}:%d", prefix, id, i+1), fmt.Sprintf("%s{~test%s.%d}:0", prefix, id, i))
	}
	return t
}

// queue adds the scripts of the test to a pipeline.
func (t *keyTest) queue(ctx context.Context, pipe redis.Pipeliner) {
	const lasts = 2000 // ms
	together := []any{"eval", keyTestLua, len(t.keys), t.keys[0]}
	for _, key := range t.keys[1:] {
		rediskit.Queue(ctx, pipe, []any{"set", key, testAlone, "PX", lasts})
		together = append(together, key)
	}
	t.together = rediskit.Queue(ctx, pipe, append(together, testTogether, "PX", lasts))

	read := func(key string) *redis.Cmd { // and delete
		return rediskit.Queue(ctx, pipe, []any{"eval", keyTestLua, 1, key, "", "PXAT", 1})
	}
	for i := 1; i < len(t.keys); i += 2 {
		t.same = append(t.same, read(t.keys[i]))
		t.other = append(t.other, read(t.keys[i+1]))
	}

	// After the others: if it is there, no failover has undone the script for all keys before they were read.
	t.first = read(t.keys[0])
}

// run makes the test in a pipeline of its own.
func (t *keyTest) run(ctx context.Context, client redis.UniversalClient) {
	pipe := client.Pipeline()
	t.queue(ctx, pipe)
	rediskit.Exec(ctx, pipe)
}

// verdict is the kind that the answers show, or "" if they show none: keys are missing, or the server has not answered. It
// is sure if the server says so itself, with CROSSSLOT.
func (t *keyTest) verdict() (kind redisstats.Kind, sure bool) {
	if t.first == nil {
		return "", false // not sent
	}

	sameAlone, sameTogether := count(t.same)
	otherAlone, otherTogether := count(t.other)

	switch {
	case redis.HasErrorPrefix(t.together.Err(), "CROSSSLOT"):
		return redisstats.BySubject, true
	case text(t.first) == "" && isReply(t.together.Err()) && sameAlone+otherAlone == 2*testKeys:
		return redisstats.BySubject, false // an error of its own for what others call CROSSSLOT
	case text(t.first) != testTogether:
		return "", false
	case sameAlone > 0:
		return redisstats.Unusable, false
	case sameTogether < testKeys:
		return "", false
	case otherAlone > 0:
		return redisstats.BySubject, false
	case otherTogether == testKeys:
		return redisstats.OneKeyspace, false
	}
	return "", false
}

// isReply reports whether an error is one that the server has answered.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !errors.Is(err, redis.Nil)
}

// count counts the keys with the value from before, and those with the value of the one script.
func count(reads []*redis.Cmd) (alone, together int) {
	for _, cmd := range reads {
		switch text(cmd) {
		case testAlone:
			alone++
		case testTogether:
			together++
		}
	}
	return alone, together
}

func text(cmd *redis.Cmd) string {
	value, _ := cmd.Text() // an error is no value
	return value
}

// settleKind tests a server until its kind is known, and returns an error if the store does not use such a server. It
// gives up if several tests show nothing. Nodes of a cluster are not tested.
func (s *Sender) settleKind(ctx context.Context, server redis.UniversalClient) error {
	b := s.only
	if s.ring != nil {
		b = s.batcherOf(server.(*redis.Client))
	}
	if b == nil {
		return nil
	}

	for range 4 {
		t := newKeyTest(s.Prefix)
		t.run(ctx, server)

		b.mu.Lock()
		settled := b.shown.verdict(t, s.Clock.Now())
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
