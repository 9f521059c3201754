package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// anyCall generates several admissions on a few keys that they share, half of them with
// quotas. Half of the buckets have room for debt.
func anyCall(now int64) *rapid.Generator[call] {
	return rapid.Custom(func(t *rapid.T) call {
		var c call
		for i := range rapid.IntRange(1, 6).Draw(t, "keys") {
			c.keys = append(c.keys, fmt.Sprint("k", i))
		}
		for range rapid.IntRange(1, 5).Draw(t, "params") {
			c.params = append(c.params, anyParams(t)...)
		}
		length := int64(1) // of periods
		for _, p := range c.params {
			length = max(length, 4*p[2])
		}
		c.periods = anyPeriods(t, now, length)
		quotas := length < 1<<50 && rapid.Bool().Draw(t, "quotas") // times stay below 2^53
		c.ops = anyOps(t, c, quotas)

		if !slices.ContainsFunc(c.ops, func(o op) bool { return o.periods > 0 }) {
			c.periods = nil
		}
		return c
	})
}

// anyParams draws params and, for a bucket with room for debt, also params of a late charge.
func anyParams(t *rapid.T) (all []params) {
	unit := rapid.SampledFrom([]int64{10, 1000, 3_333_333, 1e7, 3 * 864e9, 366 * 864e9}).Draw(t, "T")
	capacity := unit * rapid.Int64Range(1, max(1, min(20, 366*864e9/unit))).Draw(t, "B")
	within := rapid.SampledFrom([]int64{0, 0, 1, unit, 5*unit + 1}).Draw(t, "within")

	p := params{0, capacity + within, capacity + within + rapid.SampledFrom([]int64{0, 0, unit}).Draw(t, "beyond"), 0}
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0: // a peek
	case 1: // a refund
		p[0] = -unit * rapid.Int64Range(1, p[2]/unit+1).Draw(t, "cost")
	case 2: // never
		p[0], p[1] = unit, -1
	default:
		p[0] = unit * rapid.Int64Range(1, capacity/unit).Draw(t, "cost")
	}

	if rapid.Bool().Draw(t, "has debt") {
		debt := unit * rapid.Int64Range(1, min(20, 366*864e9/unit)).Draw(t, "debt")
		p[2] += debt
		late := params{unit * rapid.Int64Range(1, (capacity+debt)/unit+3).Draw(t, "late"), capacity + debt, rapid.SampledFrom([]int64{p[2], capacity + 366*864e9}).Draw(t, "late top"), unit}
		if rapid.IntRange(0, 3).Draw(t, "down") == 0 {
			late[0], late[3] = -late[0], 0
		}
		all = append(all, late)
	}

	return append(all, p)
}

// anyPeriods draws the periods of one calendar, as callers see them whose clocks are right
// or wrong by some periods, or of a refund in one period.
func anyPeriods(t *rapid.T, now, length int64) (all []periods) {
	phase := now - rapid.OneOf(rapid.SampledFrom([]int64{0, 1, length - 1}), rapid.Int64Range(0, length-1)).Draw(t, "phase")
	for range rapid.IntRange(1, 4).Draw(t, "callers") {
		n := phase + length*rapid.SampledFrom([]int64{-4, -3, -2, -2, -1, -1, 0, 0, 1}).Draw(t, "view") // now is in those from -2, -1 and 0
		if rapid.IntRange(0, 3).Draw(t, "of a refund") == 0 {
			all = append(all, periods{n, n + length, n + length, n + length})
		} else {
			all = append(all, periods{n, n + length, n + 2*length, n + 3*length})
		}
	}
	return all
}

// anyOps draws the ops of a call.
func anyOps(t *rapid.T, c call, quotas bool) (ops []op) {
	for range rapid.IntRange(1, 12).Draw(t, "ops") {
		o := op{
			key:    rapid.IntRange(0, len(c.keys)-1).Draw(t, "key"),
			params: rapid.IntRange(0, len(c.params)-1).Draw(t, "params of"),
			last:   rapid.Bool().Draw(t, "last"),
			shadow: rapid.IntRange(0, 3).Draw(t, "shadow") == 0,
		}

		if quotas && o.key%2 == 0 {
			o.periods = rapid.IntRange(1, len(c.periods)).Draw(t, "periods of")
		}
		ops = append(ops, o)
	}

	switch rapid.IntRange(0, 4).Draw(t, "shape") {
	case 0:
		ops = []op{{shadow: ops[0].shadow}}
	case 1:
		ops = simple(c.keys)
	}

	ops[len(ops)-1].last = true
	return ops
}

// Replies and values of take.lua equal the model's, for any batch and any
// earlier values.
func TestScriptIsTheModel(t *testing.T) {
	for _, tt := range anyAndEmbedded {
		t.Run(tt.name, func(t *testing.T) {
			client := tt.open(t)
			clock := stopClock(t, client, hideKeys...)
			sha, err := client.ScriptLoad(t.Context(), takeLua(t)).Result()
			if err != nil {
				t.Fatal(err)
			}
			for range 20 { // of a hundred each
				rapid.Check(t, func(t *rapid.T) { checkScript(t, client, clock, sha) })
			}
		})
	}
}

// FuzzScript fuzzes the same on the embedded Redis. That runs the Lua in Go, so the
// fuzzer measures its coverage too.
func FuzzScript(f *testing.F) {
	client := embedded(f)
	clock := stopClock(f, client, hideKeys...)
	sha, err := client.ScriptLoad(f.Context(), takeLua(f)).Result()
	if err != nil {
		f.Fatal(err)
	}
	seed := rand.NewChaCha8([32]byte{})
	for range 30 {
		draws := make([]byte, 4096) // for the largest call: rapid skips one whose draws run out
		seed.Read(draws)
		f.Add(draws)
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { checkScript(t, client, clock, sha) }))
}

// hideKeys has a key fail, as one of another node does, while "hidden:" and the key
// exists.
var hideKeys = [][2]string{
	{"redis.pcall('GET', keys[k])", "redis.pcall(redis.call('EXISTS', 'hidden:' .. keys[k]) == 1 and 'NONE' or 'GET', keys[k])"},
	{"redis.pcall('MGET', keys[k])", "redis.pcall(redis.call('EXISTS', 'hidden:' .. keys[k]) == 1 and 'NONE' or 'MGET', keys[k])"},
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
		bounds := rapid.SampledFrom([]int64{-1, 0, 1, d[2] - 1, d[2], d[2] + 1, d[1] - d[0], d[1] - d[0] + 1})
		tats[key] = now + rapid.OneOf(bounds, bounds, bounds, rapid.Int64Range(-d[2], 2*d[2])).Draw(t, "debt")
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
		if err != nil || text != strconv.FormatInt(want, 10) {
			t.Fatalf("at %d on %v, %+v, then %s: got %q, %v; want %d", now, before, c, key, text, err, want)
		}
	}
}

// takeLua returns the text of the script.
func takeLua(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("internal/send/take.lua")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func shaOf(script string) string { return redis.NewScript(script).Hash() }
