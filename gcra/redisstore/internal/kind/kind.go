// Package kind finds out what kind of server a store talks to: a probe in, a kind out. It decides nothing: package send
// chooses how to send by the kind.
//
// A [State] is for a single server or a shard of a ring, which a [Probe] tests. A node of a cluster is not tested: its answers
// to what is sent anyway show what it runs.
package kind

// Package redisstats names the kinds. A new one also needs its groups of keys (send/request.go), and a text in
// middleware/inspect/page.html.

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

const (
	probeAgain        = time.Second // after a probe without a verdict
	probeSettledAgain = time.Minute // of a server whose kind is known: it may have changed
)

// A State is what a server has shown of itself: the zero value, nothing yet. Times are by the store's clock.
type State struct {
	kind  redisstats.Kind
	guess redisstats.Kind // the verdict of the last probe; two that agree make the kind
	due   int64           // when to probe again
}

// Kind returns the kind of the server, or "" if it is not known.
func (s *State) Kind() redisstats.Kind { return s.kind }

// Settle sets the kind.
func (s *State) Settle(kind redisstats.Kind, now int64) {
	s.kind, s.guess, s.due = kind, kind, now+tat.Ticks(probeSettledAgain)
}

// Due reports whether to probe the server now. The next probe is due in a second, unless Learn sets another time.
func (s *State) Due(now int64) bool {
	if now < s.due {
		return false
	}
	s.due = now + tat.Ticks(probeAgain)
	return true
}

// Learn records the answers to a probe, and reports whether they have settled the kind.
func (s *State) Learn(p *Probe, now int64) (settled bool) {
	kind, sure := p.verdict()

	switch {
	case sure, kind != "" && kind == s.guess:
		s.Settle(kind, now)
		return true
	case kind != "" && s.guess == "":
		s.due = now // the next batch confirms it
	}

	// Also if it shows nothing: two that agree have none between them.
	s.guess = kind
	return false
}

//go:embed probe.lua
var probeFile string

// probeLua is the script without its comment, as it is sent many times.
var _, probeLua, _ = strings.Cut(probeFile, "\n\n")

// A Probe finds out whether scripts on a server see the keys that other scripts have written. One script writes many
// keys at once. Before that, a SET for each key but the first has written another value there, and after it a script
// for each key alone reads the key:
//
//   - The value of the one script: both work on the same server.
//   - The value from before: the one script has written elsewhere, or not at all. This does not happen by chance: a key
//     that was evicted or lost in a failover has no value.
//
// The keys are read by scripts, as a replica may answer MGET, and with a value from before if it lags.
//
// Some keys have the hash tag of the first key, others have tags of their own. The keys are new in each probe, and the last
// script for each deletes it.
type Probe struct {
	prefix      string
	together    *redis.Cmd   // the script for all keys; the first key decides where it runs
	first       *redis.Cmd   // reads the first key
	same, other []*redis.Cmd // read the keys with its tag, and those with others
}

const (
	// probeKeys is how many keys have the first key's tag, and how many have another. If a proxy divides keys equally
	// between two servers, the keys of a probe are on one of them by chance once in 4,096 times; two probes must agree.
	probeKeys = 12

	valueAlone, valueTogether = "alone", "together"
)

// NewProbe returns a probe whose keys begin with a prefix.
func NewProbe(prefix string) *Probe { return &Probe{prefix: prefix} }

// Queue adds the scripts of the probe to a pipeline.
func (p *Probe) Queue(ctx context.Context, pipe redis.Pipeliner) {
	const lasts = 2000 // ms
	tag := fmt.Sprintf("%s{~test%x", p.prefix, rand.Uint64())
	keys := []any{tag + "}:0"}
	for i := range probeKeys {
		same, other := fmt.Sprintf("%s}:%d", tag, i+1), fmt.Sprintf("%s.%d}:0", tag, i)
		keys = append(keys, same, other)
	}

	for _, key := range keys[1:] {
		rediskit.Queue(ctx, pipe, []any{"set", key, valueAlone, "PX", lasts})
	}
	p.together = rediskit.Queue(ctx, pipe, slices.Concat([]any{"eval", probeLua, len(keys)}, keys, []any{valueTogether, "PX", lasts}))

	read := func(key any) *redis.Cmd { // and delete
		return rediskit.Queue(ctx, pipe, []any{"eval", probeLua, 1, key, "", "PXAT", 1})
	}
	for pair := range slices.Chunk(keys[1:], 2) {
		p.same, p.other = append(p.same, read(pair[0])), append(p.other, read(pair[1]))
	}

	// After the others: if it is there, no failover has undone the script for all keys before they were read.
	p.first = read(keys[0])
}

// verdicts say what kind of server the answers show. The first row that fits holds; without one they show nothing, as when
// keys are missing. An empty column fits all. The script for all keys is answered by CROSSSLOT, by which the server says itself
// that it divides keys, or refused by another error. Keys are together if all have the value of that script, apart if some
// have the value from before, and gone otherwise.
var verdicts = []struct {
	script, first, same, other string
	kind                       redisstats.Kind
	sure                       bool // one probe is enough
}{
	{"CROSSSLOT", "", "", "", redisstats.BySubject, true},
	{"refused", "gone", "apart", "apart", redisstats.BySubject, false}, // an error of its own for what others call CROSSSLOT
	{"", "together", "apart", "", redisstats.Unusable, false},
	{"", "together", "together", "apart", redisstats.BySubject, false},
	{"", "together", "together", "together", redisstats.OneKeyspace, false},
}

// verdict returns the kind that the answers show, or "".
func (p *Probe) verdict() (kind redisstats.Kind, sure bool) {
	if p.first == nil {
		return "", false // not sent
	}

	script := "not refused"
	if err := p.together.Err(); redis.HasErrorPrefix(err, "CROSSSLOT") {
		script = "CROSSSLOT"
	} else if rediskit.IsReply(err) {
		script = "refused"
	}
	first, same, other := keysSeen(p.first), keysSeen(p.same...), keysSeen(p.other...)

	fits := func(column, seen string) bool { return column == "" || column == seen }
	for _, v := range verdicts {
		if fits(v.script, script) && fits(v.first, first) && fits(v.same, same) && fits(v.other, other) {
			return v.kind, v.sure
		}
	}
	return "", false
}

// keysSeen says where keys are.
func keysSeen(reads ...*redis.Cmd) string {
	n := map[string]int{}
	for _, cmd := range reads {
		value, _ := cmd.Text() // an error is no value
		n[value]++
	}
	switch {
	case n[valueTogether] == len(reads):
		return "together"
	case n[valueAlone] > 0:
		return "apart"
	}
	return "gone"
}
