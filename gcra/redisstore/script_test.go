package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// fare is one charge of a call of take.lua, as its header describes it.
type fare struct {
	key, demand  int
	last, shadow bool
}

// demand is inc, room and top.
type demand [3]int64

// call is what take.lua gets.
type call struct {
	keys    []string
	fares   []fare
	demands []demand
}

// common are the fares of the most common batch, for which the plan is empty.
func common(keys []string) []fare {
	var fares []fare
	for k := range keys {
		fares = append(fares, fare{key: k, last: true})
	}
	return fares
}

func (c call) args() []any {
	args := []any{c.plan()}
	for _, d := range c.demands {
		args = append(args, d[0], d[1], d[2])
	}
	return args
}

func (c call) plan() (plan []byte) {
	if d := c.demands[0]; d[0] > 0 && d[1] >= d[0] && slices.Equal(c.fares, common(c.keys)) {
		return nil
	}
	for _, f := range c.fares {
		flags := byte(0)
		if f.last {
			flags |= 1
		}
		if f.shadow {
			flags |= 2
		}
		plan = append(plan, byte(f.key>>8), byte(f.key), byte(f.demand), flags)
	}
	return plan
}

// model does what take.lua does, in Go: it changes the TATs of the keys and
// returns the reply. A key without a TAT has none in the map.
func (c call) model(now int64, tats map[string]int64) []int64 {
	reply := make([]int64, 0, len(c.fares))
	first, admitted := 0, true
	undo := make(map[string]int64) // the TATs before the admission under way
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
	for i, f := range c.fares {
		key, d := c.keys[f.key], c.demands[f.demand]
		inc, room, top := d[0], d[1], d[2]
		tat, ok := tats[key]
		if !ok {
			tat = now
		}
		ahead := min(max(tat-now, 0), top)
		if tat-now > top && inc > 0 && room >= 0 {
			tats[key] = now + top
		}
		reply = append(reply, ahead)
		switch {
		case inc > 0 && ahead+inc <= room, inc < 0 && ahead > 0:
			set(key, now+max(ahead+inc, 0))
		case inc > 0 && !f.shadow:
			admitted = false
		}
		if !f.last {
			continue
		}
		if !admitted {
			for key, tat := range undo {
				tats[key] = tat
			}
			for j := first; j <= i; j++ {
				reply[j] = -reply[j] - 1
			}
		}
		clear(undo)
		first, admitted = i+1, true
	}
	return reply
}

// anyCall draws several admissions over a few keys, which they share.
func anyCall() *rapid.Generator[call] {
	return rapid.Custom(func(t *rapid.T) call {
		var c call
		for i := range rapid.IntRange(1, 6).Draw(t, "keys") {
			c.keys = append(c.keys, fmt.Sprint("k", i))
		}
		for range rapid.IntRange(1, 5).Draw(t, "demands") {
			unit := rapid.SampledFrom([]int64{10, 1000, 3_333_333, 1e7, 3 * 864e9, 366 * 864e9}).Draw(t, "T")
			capacity := unit * rapid.Int64Range(1, max(1, min(20, 366*864e9/unit))).Draw(t, "B")
			within := rapid.SampledFrom([]int64{0, 0, 1, unit, 5*unit + 1}).Draw(t, "within")
			d := demand{0, capacity + within, capacity + within + rapid.SampledFrom([]int64{0, 0, unit}).Draw(t, "beyond")}
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0: // a peek
			case 1: // a refund
				d[0] = -unit * rapid.Int64Range(1, d[2]/unit+1).Draw(t, "cost")
			case 2: // never
				d[0], d[1] = unit, -1
			default:
				d[0] = unit * rapid.Int64Range(1, capacity/unit).Draw(t, "cost")
			}
			c.demands = append(c.demands, d)
		}
		// One bucket sees refunds and charges, but one top: that of its limit.
		// The header's law leaves open what two tops in one admission make of it.
		used := make(map[int]int64)
		for range rapid.IntRange(1, 12).Draw(t, "fares") {
			f := fare{
				key:    rapid.IntRange(0, len(c.keys)-1).Draw(t, "key"),
				demand: rapid.IntRange(0, len(c.demands)-1).Draw(t, "demand"),
				last:   rapid.Bool().Draw(t, "last"),
				shadow: rapid.IntRange(0, 3).Draw(t, "shadow") == 0,
			}
			top := c.demands[f.demand][2]
			if old, ok := used[f.key]; ok && old != top {
				continue
			}
			used[f.key] = top
			c.fares = append(c.fares, f)
		}
		switch rapid.IntRange(0, 4).Draw(t, "shape") {
		case 0:
			c.fares = []fare{{shadow: c.fares[0].shadow}}
		case 1:
			c.fares = common(c.keys)
		}
		c.fares[len(c.fares)-1].last = true
		return c
	})
}

// What take.lua answers and writes is what the model does, whatever the batch
// and whatever stood in the keys.
func TestScriptIsTheModel(t *testing.T) {
	for _, tt := range []struct {
		name string
		open func(testing.TB) *redis.Client
	}{{"Any", anyRedis}, {"Embedded", embedded}} {
		t.Run(tt.name, func(t *testing.T) {
			client := tt.open(t)
			clock := stopClock(t, client)
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

// FuzzScript is the same under a fuzzer's guidance, which sees the Lua too: the
// embedded Redis runs it in Go.
func FuzzScript(f *testing.F) {
	client := embedded(f)
	clock := stopClock(f, client)
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

func checkScript(t *rapid.T, client *redis.Client, clock *stoppedClock, sha string) {
	ctx := context.Background()
	now := rapid.Int64Range(0, 1<<52).Draw(t, "now")
	if err := clock.set(now); err != nil {
		t.Fatal(err)
	}
	c := anyCall().Draw(t, "call")
	tats := make(map[string]int64)
	pipe := client.Pipeline()
	for _, key := range c.keys {
		pipe.Del(ctx, key)
		if rapid.Bool().Draw(t, "is new") {
			continue
		}
		d := rapid.SampledFrom(c.demands).Draw(t, "debt of")
		tats[key] = now + rapid.OneOf(
			rapid.SampledFrom([]int64{-1, 0, 1, d[2] - 1, d[2], d[2] + 1, d[1] - d[0], d[1] - d[0] + 1}),
			rapid.Int64Range(-d[2], 2*d[2]),
		).Draw(t, "debt")
		pipe.Set(ctx, key, tats[key], 0)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprint(tats)
	got, err := rediskit.Reply(client.EvalSha(ctx, sha, c.keys, c.args()...), len(c.fares))
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

// Many callers at once, on a Redis that writes down every call of the script:
// played back through the model, each gives the reply that Redis gave. So what
// the callers did, one after the other as Redis saw it, was the law.
func TestConcurrentHistoryIsTheModel(t *testing.T) {
	client := unhurried(t, redistest.Start(t).Addr)
	text := takeLua(t)
	const clock = "\nlocal now = "
	if strings.Count(text, clock) != 1 {
		t.Fatalf("take.lua does not have one %q", clock)
	}
	noting := "local now\nlocal keys, plan, demands = table.concat(KEYS, ' '), ARGV[1], table.concat(ARGV, ' ', 2)\n" +
		"local function take()\n" + strings.Replace(text, clock, "\nnow = ", 1) + `
end
local reply, shown = take(), {}
local list = type(reply) == 'table' and reply or { reply }
for i = 1, #list do shown[i] = string.format('%.0f', list[i]) end
redis.call('RPUSH', 'history', string.format('%.0f', now), keys, plan, demands, table.concat(shown, ' '))
return reply`
	client.AddHook(replaceScript{strings.NewReplacer(text, noting, shaOf(text), shaOf(noting))})
	runHistory(t, client)

	history, err := client.LRange(t.Context(), "history", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	tats := make(map[string]int64)
	calls, fares := 0, 0
	for entry := range slices.Chunk(history, 5) {
		now := ints(t, entry[0])[0]
		c := call{keys: strings.Fields(entry[1])}
		for f := range slices.Chunk([]byte(entry[2]), 4) {
			c.fares = append(c.fares, fare{key: int(f[0])<<8 | int(f[1]), demand: int(f[2]), last: f[3]&1 != 0, shadow: f[3]&2 != 0})
		}
		if entry[2] == "" {
			c.fares = common(c.keys)
		}
		for d := range slices.Chunk(ints(t, entry[3]), 3) {
			c.demands = append(c.demands, demand(d))
		}
		before := fmt.Sprint(tats)
		if got, want := ints(t, entry[4]), c.model(now, tats); !slices.Equal(got, want) {
			t.Fatalf("call %d, at %d on %s, %+v:\ngot  %v\nwant %v", calls, now, before, c, got, want)
		}
		calls++
		fares += len(c.fares)
	}
	if calls == 0 || fares < 1000 {
		t.Errorf("got %d charges in %d calls; want more", fares, calls)
	}
	t.Logf("%d charges in %d calls", fares, calls)
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

// runHistory has many callers take from a few buckets that they share.
func runHistory(t *testing.T, client *redis.Client) {
	r := newStore(client)
	var wg sync.WaitGroup
	for caller := range 16 {
		wg.Go(func() {
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
	wg.Wait()
}
