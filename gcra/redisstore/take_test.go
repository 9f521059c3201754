package redisstore_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// op is an op of a call of take.lua; its header describes it.
type op struct {
	key, params  int
	last, shadow bool
	periods      int // counted from 1; 0 for a rate
}

// params are inc, room and top.
type params [3]int64

// replies is the length of the reply.
func (c call) replies() int {
	if len(c.periods) > 0 {
		return len(c.ops) + 1
	}
	return len(c.ops)
}

// periods are the three beginnings of periods of a quota, and the last end.
type periods [4]int64

// call holds the arguments of take.lua.
type call struct {
	keys    []string
	ops     []op
	params  []params
	periods []periods

	undeclared bool            // the keys are arguments
	elsewhere  map[string]bool // keys of another node
}

// simple returns the ops of the most common batch, for which an empty string is sent.
func simple(keys []string) []op {
	var ops []op
	for k := range keys {
		ops = append(ops, op{key: k, last: true})
	}
	return ops
}

// declared are the keys as EVALSHA declares them.
func (c call) declared() []string {
	if c.undeclared {
		return nil
	}
	return c.keys
}

func (c call) args() (args []any) {
	if c.undeclared {
		args = append(args, len(c.keys))
		for _, key := range c.keys {
			args = append(args, key)
		}
	}
	args = append(args, c.encode())
	for _, d := range c.params {
		args = append(args, d[0], d[1], d[2])
	}
	for _, p := range slices.Backward(c.periods) {
		args = append(args, p[0], p[1], p[2], p[3])
	}
	return args
}

func (c call) encode() (ops []byte) {
	if d := c.params[0]; d[0] > 0 && d[1] >= d[0] && slices.Equal(c.ops, simple(c.keys)) {
		return nil
	}
	for _, o := range c.ops {
		flags := byte(4 * o.periods)
		if o.last {
			flags |= 1
		}
		if o.shadow {
			flags |= 2
		}
		ops = append(ops, byte(o.key>>8), byte(o.key), byte(o.params), flags)
	}
	return ops
}

// base is what take.lua takes in place of now for a quota: the end of the current period,
// or of the next one if that has begun before the clock went back. It is not ok if now is
// in none of the periods, or the TAT of one beyond them.
func (p periods) base(now, tat, top int64) (base int64, begun, ok bool) {
	i := 1
	for now >= p[i] {
		i++
	}
	switch {
	case i == 3 || p[i+1] == p[i]:
		return p[i], false, tat-p[i] <= top
	case tat > p[i+1] && tat-p[i+1] <= top:
		return p[i+1], true, true
	}
	return p[i], false, true
}

// model is take.lua in Go: it changes the TATs of the keys and returns the reply. A
// key that does not exist has no TAT in the map.
func (c call) model(now int64, tats map[string]int64) []int64 {
	const unfit, started = -1 << 52, 1 << 50
	reply := make([]int64, 0, len(c.ops))
	bases := make(map[string]int64) // the one of a key's first op is that of all
	starts := make(map[string]int64)
	server := now
	first, admitted, here := 0, true, true
	undo := make(map[string]int64) // the TATs before the current admission
	set := func(key string, tat int64) {
		if _, ok := undo[key]; !ok {
			old, ok := tats[key]
			if !ok {
				old = now
			}
			undo[key] = old
		}
		tats[key] = tat
	}
	for i, o := range c.ops {
		key, d := c.keys[o.key], c.params[o.params]
		inc, room, top := d[0], d[1], d[2]
		tat, ok := tats[key]
		if !ok {
			tat = server
		}
		now, fits := server, true
		if o.periods > 0 {
			p := c.periods[o.periods-1]
			base, known := bases[key]
			begun := false
			switch {
			case server < p[0] || server >= p[3]:
				fits = false
			case known:
				fits = base <= p[3]
			default:
				if base, begun, fits = p.base(server, tat, top); fits {
					bases[key] = base
				}
				if begun {
					starts[key] = started
				}
			}
			now = base
		}
		ahead := min(max(tat-now, 0), top)
		switch {
		case c.elsewhere[key]:
			reply = append(reply, 0)
			here, admitted = false, false
		case !fits:
			reply = append(reply, unfit)
			admitted = false
		default:
			if tat-now > top && inc > 0 && room >= 0 {
				tats[key] = now + top
			}
			reply = append(reply, ahead+starts[key])
			switch {
			case inc > 0 && ahead+inc <= room, inc < 0 && ahead > 0:
				set(key, now+max(ahead+inc, 0))
			case inc > 0 && !o.shadow:
				admitted = false
			}
		}
		if !o.last {
			continue
		}
		if !admitted {
			for key, tat := range undo {
				tats[key] = tat
			}
			for j := first; j <= i; j++ {
				switch {
				case !here:
					reply[j] = -1 << 53
				case reply[j] >= 0:
					reply[j] = -reply[j] - 1
				}
			}
		}
		clear(undo)
		first, admitted, here = i+1, true, true
	}
	if c.replies() > len(reply) {
		reply = append(reply, server)
	}
	return reply
}

// anyCall generates several admissions on a few keys that they share, half of them with
// quotas.
func anyCall(now int64) *rapid.Generator[call] {
	return rapid.Custom(func(t *rapid.T) call {
		var c call
		for i := range rapid.IntRange(1, 6).Draw(t, "keys") {
			c.keys = append(c.keys, fmt.Sprint("k", i))
		}
		for range rapid.IntRange(1, 5).Draw(t, "params") {
			unit := rapid.SampledFrom([]int64{10, 1000, 3_333_333, 1e7, 3 * 864e9, 366 * 864e9}).Draw(t, "T")
			capacity := unit * rapid.Int64Range(1, max(1, min(20, 366*864e9/unit))).Draw(t, "B")
			within := rapid.SampledFrom([]int64{0, 0, 1, unit, 5*unit + 1}).Draw(t, "within")
			p := params{0, capacity + within, capacity + within + rapid.SampledFrom([]int64{0, 0, unit}).Draw(t, "beyond")}
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0: // a peek
			case 1: // a refund
				p[0] = -unit * rapid.Int64Range(1, p[2]/unit+1).Draw(t, "cost")
			case 2: // never
				p[0], p[1] = unit, -1
			default:
				p[0] = unit * rapid.Int64Range(1, capacity/unit).Draw(t, "cost")
			}
			c.params = append(c.params, p)
		}
		// The periods of each quota are of one calendar, as callers see them whose clocks are
		// right or wrong by some periods, or of a refund in one period.
		length := int64(1)
		for _, p := range c.params {
			length = max(length, 4*p[2])
		}
		phase := now - rapid.OneOf(rapid.SampledFrom([]int64{0, 1, length - 1}), rapid.Int64Range(0, length-1)).Draw(t, "phase")
		quotas := length < 1<<50 && rapid.Bool().Draw(t, "quotas") // times stay below 2^53
		for range rapid.IntRange(1, 4).Draw(t, "calendars") {
			n := phase + length*rapid.Int64Range(-4, 2).Draw(t, "view")
			c.periods = append(c.periods, periods{n, n + length, n + 2*length, n + 3*length})
			if rapid.IntRange(0, 3).Draw(t, "of a refund") == 0 {
				c.periods[len(c.periods)-1] = periods{n, n + length, n + length, n + length}
			}
		}
		// A bucket has refunds and charges, but one top, that of its limit: the result
		// of two tops in one admission is not specified.
		used := make(map[int]int64)
		for range rapid.IntRange(1, 12).Draw(t, "ops") {
			o := op{
				key:    rapid.IntRange(0, len(c.keys)-1).Draw(t, "key"),
				params: rapid.IntRange(0, len(c.params)-1).Draw(t, "params of"),
				last:   rapid.Bool().Draw(t, "last"),
				shadow: rapid.IntRange(0, 3).Draw(t, "shadow") == 0,
			}
			top := c.params[o.params][2]
			if old, ok := used[o.key]; ok && old != top {
				continue
			}
			used[o.key] = top
			if quotas && o.key%2 == 0 {
				o.periods = rapid.IntRange(1, len(c.periods)).Draw(t, "periods of")
			}
			c.ops = append(c.ops, o)
		}
		switch rapid.IntRange(0, 4).Draw(t, "shape") {
		case 0:
			c.ops = []op{{shadow: c.ops[0].shadow}}
		case 1:
			c.ops = simple(c.keys)
		}
		c.ops[len(c.ops)-1].last = true
		if !slices.ContainsFunc(c.ops, func(o op) bool { return o.periods > 0 }) {
			c.periods = nil
		}
		return c
	})
}

// Replies and values of take.lua are those of the model, for any batch and any
// earlier values.
func TestScriptIsTheModel(t *testing.T) {
	for _, tt := range anyAndEmbedded {
		t.Run(tt.name, func(t *testing.T) {
			client := tt.open(t)
			clock := stopClock(t, client, hideKeys)
			sha, err := client.ScriptLoad(t.Context(), takeLua(t)).Result()
			if err != nil {
				t.Fatal(err)
			}
			for range 5 { // of a hundred each
				rapid.Check(t, func(t *rapid.T) { checkScript(t, client, clock, sha) })
			}
		})
	}
}

// FuzzScript fuzzes the same on the embedded Redis. That runs the Lua in Go, so the
// fuzzer measures its coverage too.
func FuzzScript(f *testing.F) {
	client := embedded(f)
	clock := stopClock(f, client, hideKeys)
	sha, err := client.ScriptLoad(f.Context(), takeLua(f)).Result()
	if err != nil {
		f.Fatal(err)
	}
	seed := rand.NewChaCha8([32]byte{})
	for range 30 {
		draws := make([]byte, 2048)
		seed.Read(draws)
		f.Add(draws)
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { checkScript(t, client, clock, sha) }))
}

// hideKeys has a key fail, as one of another node does, while "hidden:" and the key
// exists.
var hideKeys = [2]string{
	"redis.pcall('MGET', keys[k])",
	"redis.pcall(redis.call('EXISTS', 'hidden:' .. keys[k]) == 1 and 'INCR' or 'MGET', keys[k], 'x')",
}

func checkScript(t *rapid.T, client *redis.Client, clock *stoppedClock, sha string) {
	ctx := context.Background()
	now := rapid.Int64Range(0, 1<<52).Draw(t, "now")
	if err := clock.set(now); err != nil {
		t.Fatal(err)
	}
	c := anyCall(now).Draw(t, "call")
	c.undeclared = rapid.Bool().Draw(t, "undeclared")
	c.elsewhere = make(map[string]bool)
	tats := make(map[string]int64)
	pipe := client.Pipeline()
	for _, key := range c.keys {
		pipe.Del(ctx, key, "hidden:"+key)
		if c.undeclared && rapid.IntRange(0, 3).Draw(t, "elsewhere") == 0 {
			c.elsewhere[key] = true
			pipe.Set(ctx, "hidden:"+key, 1, 0)
			continue
		}
		if rapid.Bool().Draw(t, "is new") {
			continue
		}
		d := rapid.SampledFrom(c.params).Draw(t, "debt of")
		tats[key] = now + rapid.OneOf(
			rapid.SampledFrom([]int64{-1, 0, 1, d[2] - 1, d[2], d[2] + 1, d[1] - d[0], d[1] - d[0] + 1}),
			rapid.Int64Range(-d[2], 2*d[2]),
		).Draw(t, "debt")
		if len(c.periods) > 0 { // of a period that callers see
			seen := rapid.SampledFrom(c.periods).Draw(t, "periods")
			tats[key] += seen[rapid.IntRange(0, 3).Draw(t, "end")] - now
		}
		pipe.Set(ctx, key, tats[key], 0)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprint(tats)
	got, err := rediskit.Reply(client.EvalSha(ctx, sha, c.declared(), c.args()...), c.replies())
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	if want := c.model(now, tats); !slices.Equal(got, want) {
		t.Fatalf("at %d on %v, %+v:\ngot  %v\nwant %v", now, before, c, got, want)
	}
	for _, key := range c.keys {
		text, err := client.Get(ctx, key).Result()
		want, ok := tats[key]
		if err == redis.Nil && (!ok || want == now) {
			continue // a bucket that is full need not be there
		}
		if stored, _ := strconv.ParseInt(text, 10, 64); err != nil || stored != want || strconv.FormatInt(stored, 10) != text {
			t.Fatalf("at %d on %v, %+v, then %s: got %q, %v; want %d", now, before, c, key, text, err, want)
		}
	}
}

// Redis records the calls of many concurrent callers. Replayed on the model in the
// same order, each call has the same reply.
func TestConcurrentHistoryIsTheModel(t *testing.T) {
	client := patientClient(t, redistest.Start(t).Addr)
	text := takeLua(t)
	const clock = "\nlocal now = "
	if strings.Count(text, clock) != 1 {
		t.Fatalf("take.lua does not have one %q", clock)
	}
	recording := "local now\nlocal keys, ops, params = table.concat(KEYS, ' '), ARGV[1], table.concat(ARGV, ' ', 2)\n" +
		"local function take()\n" + strings.Replace(text, clock, "\nnow = ", 1) + `
end
local reply, shown = take(), {}
local list = type(reply) == 'table' and reply or { reply }
for i = 1, #list do shown[i] = string.format('%.0f', list[i]) end
redis.call('RPUSH', 'history', string.format('%.0f', now), keys, ops, params, table.concat(shown, ' '))
return reply`
	client.AddHook(replaceScript(text, recording))
	runHistory(t, client)

	history, err := client.LRange(t.Context(), "history", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	tats := make(map[string]int64)
	calls, ops := 0, 0
	for entry := range slices.Chunk(history, 5) {
		now := ints(t, entry[0])[0]
		c := call{keys: strings.Fields(entry[1])}
		for f := range slices.Chunk([]byte(entry[2]), 4) {
			c.ops = append(c.ops, op{key: int(f[0])<<8 | int(f[1]), params: int(f[2]), last: f[3]&1 != 0, shadow: f[3]&2 != 0, periods: int(f[3] / 4)})
		}
		if entry[2] == "" {
			c.ops = simple(c.keys)
		}
		for d := range slices.Chunk(ints(t, entry[3]), 3) {
			c.params = append(c.params, params(d))
		}
		before := fmt.Sprint(tats)
		if got, want := ints(t, entry[4]), c.model(now, tats); !slices.Equal(got, want) {
			t.Fatalf("call %d, at %d on %s, %+v:\ngot  %v\nwant %v", calls, now, before, c, got, want)
		}
		calls++
		ops += len(c.ops)
	}
	if calls == 0 || ops < 1000 {
		t.Errorf("got %d charges in %d calls; want more", ops, calls)
	}
	t.Logf("%d charges in %d calls", ops, calls)
}

func ints(t *testing.T, s string) []int64 {
	t.Helper()
	var list []int64
	for f := range strings.FieldsSeq(s) {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

// runHistory takes from a few buckets with many callers.
func runHistory(t *testing.T, client *redis.Client) {
	r := newStore(client)
	redistest.Together(16, func(caller int) {
		rng := rand.New(rand.NewPCG(uint64(caller), 1))
		for range 100 {
			charges := make([]gcra.Charge, 1+rng.IntN(3))
			for i := range charges {
				policy := rng.IntN(3)
				charges[i] = gcra.Charge{
					Subject: fmt.Sprint("s", rng.IntN(3)),
					Policy:  fmt.Sprint("p", policy),
					Limit:   []gcra.Limit{gcra.PerSecond(1000), gcra.PerMinute(600).WithBurst(50), gcra.PerDay(300)}[policy],
					Cost:    int64(rng.IntN(3)),
					Shadow:  rng.IntN(4) == 0,
				}
			}
			var err error
			if rng.IntN(8) == 0 {
				err = r.Refund(t.Context(), charges)
			} else {
				_, err = r.Take(t.Context(), charges)
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// takeLua returns the text of the script.
func takeLua(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("take.lua")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func shaOf(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}
