package kind

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

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
	keys        []string     // the first decides where the script for all runs
	together    *redis.Cmd   // the script for all keys
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
func NewProbe(prefix string) *Probe {
	id := strconv.FormatUint(rand.Uint64(), 36)
	p := &Probe{keys: []string{fmt.Sprintf("%s{~test%s}:0", prefix, id)}}
	for i := range probeKeys {
		p.keys = append(p.keys, fmt.Sprintf("%s{~test%s}:%d", prefix, id, i+1), fmt.Sprintf("%s{~test%s.%d}:0", prefix, id, i))
	}
	return p
}

// Queue adds the scripts of the probe to a pipeline.
func (p *Probe) Queue(ctx context.Context, pipe redis.Pipeliner) {
	const lasts = 2000 // ms
	together := []any{"eval", probeLua, len(p.keys), p.keys[0]}
	for _, key := range p.keys[1:] {
		rediskit.Queue(ctx, pipe, []any{"set", key, valueAlone, "PX", lasts})
		together = append(together, key)
	}
	p.together = rediskit.Queue(ctx, pipe, append(together, valueTogether, "PX", lasts))

	read := func(key string) *redis.Cmd { // and delete
		return rediskit.Queue(ctx, pipe, []any{"eval", probeLua, 1, key, "", "PXAT", 1})
	}
	for i := 1; i < len(p.keys); i += 2 {
		p.same = append(p.same, read(p.keys[i]))
		p.other = append(p.other, read(p.keys[i+1]))
	}

	// After the others: if it is there, no failover has undone the script for all keys before they were read.
	p.first = read(p.keys[0])
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
