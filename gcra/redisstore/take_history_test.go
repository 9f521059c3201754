package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Redis records the calls of many concurrent callers. Replayed on the model in the
// same order, each call has the same reply.
func TestConcurrentHistoryIsTheModel(t *testing.T) {
	client := patientClient(t, redistest.Start(t).Addr)
	text := takeLua(t)
	const clock = "\nlocal now = "
	if strings.Count(text, clock) != 1 {
		t.Fatalf("take.lua does not have one %q", clock)
	}

	recording := "local now\nlocal keys, ops, params = table.concat(KEYS, ' '), '', table.concat(ARGV, ' ')\n" +
		"if #ARGV > 3 then ops, params = ARGV[1], table.concat(ARGV, ' ', 2) end\n" +
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
		for f := range slices.Chunk([]byte(entry[2]), 5) {
			c.ops = append(c.ops, op{key: int(f[0])<<8 | int(f[1]), params: int(f[2]), last: f[4]&1 != 0, shadow: f[4]&2 != 0})
		}
		sent := ints(t, entry[3])
		if entry[2] == "" {
			c.ops = simple(c.keys)
			sent = []int64{sent[0], sent[1], sent[len(sent)-1], 0}
		}
		for d := range slices.Chunk(sent, 4) {
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
	r := newStore(t, client, config{})
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
					Peek:    rng.IntN(4) == 0,
					Late:    rng.IntN(4) == 0,
					MaxDebt: 10,
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
