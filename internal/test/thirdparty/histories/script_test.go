package histories

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// historyURL makes this test binary a process of [TestHistory]: the URL of their
// Redis.
const historyURL = "RATELIMIT_HISTORIES_SCRIPT"

// recordingScript returns take.lua and a variant that appends each call to a list: time, keys,
// arguments, the values before and after, and the reply.
func recordingScript() (text, variant string, err error) {
	b, err := os.ReadFile("../../../../gcra/redisstore/internal/send/take.lua")
	if err != nil {
		return "", "", err
	}

	const clock = "\nlocal now = "
	text = string(b)
	if n := strings.Count(text, clock); n != 1 {
		return "", "", fmt.Errorf("take.lua has %q %d times; want once", clock, n)
	}

	return text, `local now
local function tats()
  local list = redis.call('MGET', unpack(KEYS))
  for i = 1, #KEYS do list[i] = list[i] or '-' end
  return table.concat(list, ' ')
end
local keys, ops, params, before = table.concat(KEYS, ' '), '', table.concat(ARGV, ' '), tats()
if #ARGV > 3 then ops, params = ARGV[1], table.concat(ARGV, ' ', 2) end
local function take()
` + strings.Replace(text, clock, "\nnow = ", 1) + `
end
local reply, shown = take(), {}
local list = type(reply) == 'table' and reply or { reply }
for i = 1, #list do shown[i] = string.format('%.0f', list[i]) end
redis.call('RPUSH', 'history', string.format('%.0f', now), keys, ops, params, before, tats(), table.concat(shown, ' '))
return reply`, nil
}

// instead is a hook that sends one script for another.
type instead struct{ *strings.Replacer }

func (h instead) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h instead) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.replace(cmd)
		return next(ctx, cmd)
	}
}

func (h instead) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.replace(cmd)
		}
		return next(ctx, cmds)
	}
}

func (h instead) replace(cmd redis.Cmder) {
	if name := cmd.Name(); name == "eval" || name == "evalsha" {
		cmd.Args()[1] = h.Replace(cmd.Args()[1].(string))
	}
}

func shaOf(script string) string { return redis.NewScript(script).Hash() }

var historyLimits = []gcra.Limit{gcra.PerSecond(500).WithBurst(20), gcra.PerMinute(600).WithBurst(50), gcra.PerDay(300)}

// makeHistory takes from few keys with many callers. Its argument is a URL, how often each takes, the most that it
// pauses in between, and perhaps a word, by which the store has no denial cache.
func makeHistory(arg string, _ io.Reader, _ io.Writer) error {
	words := append(strings.Fields(arg), "")
	o, err := redis.ParseURL(words[0])
	if err != nil {
		return err
	}

	o.ReadTimeout = patience
	o.MinIdleConns, o.PipelinePoolSize = 2, -1 // so at a distance many batches are in flight
	client := redis.NewClient(o)
	defer client.Close()
	text, variant, err := recordingScript()
	if err != nil {
		return err
	}

	client.AddHook(instead{strings.NewReplacer(text, variant, shaOf(text), shaOf(variant))})
	cfg := redisstore.Config{Timeout: patience}
	if words[3] != "" {
		cfg.DenialTTL = -1
	}
	store, err := redisstore.New(client, cfg)
	if err != nil {
		return err
	}
	if err := store.Ping(context.Background()); err != nil { // from now on an admission is one call
		return err
	}

	rounds, err := strconv.Atoi(words[1])
	pause, err2 := time.ParseDuration(words[2])
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	var failed atomic.Pointer[error]
	redistest.Together(16, func(int) {
		for range rounds {
			time.Sleep(rand.N(pause + 1))
			charges := make([]gcra.Charge, 1+rand.IntN(3))
			for i := range charges {
				policy := rand.IntN(len(historyLimits))
				charges[i] = gcra.Charge{
					Subject: fmt.Sprint("s", rand.IntN(3)), Policy: fmt.Sprint("p", policy),
					Limit: historyLimits[policy], Cost: int64(rand.IntN(4)), Peek: rand.IntN(4) == 0, Late: rand.IntN(4) == 0,
				}
			}

			if _, err := store.Take(context.Background(), charges); err != nil {
				failed.Store(&err)
			}
		}
	})

	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// params are the parameters of a charge.
type params struct{ inc, room, top, unit int64 }

// TestHistory is a check of linearizability: several processes share a real
// Redis that records every call of the script. The calls are replayed in that
// order with the algorithm of package gcra's comment: each call finds the TATs that
// the call before it left, and its reply and the values it leaves are the
// algorithm's. So all callers saw one limiter that takes one request after the other.
// Then the promise itself: between any two allowed requests no more was allowed
// than the burst and what the time between them adds.
func TestHistory(t *testing.T) {
	server := redistest.Start(t)
	testHistory(t, server, server.URL(), amount(120, 2000), 0)
}

// At a distance many batches are in flight, and overtake each other.
func TestHistoryAtADistance(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	proxy.DelayBetween(5*time.Millisecond, 6*time.Millisecond)
	testHistory(t, server, "redis://"+proxy.Addr, amount(120, 2000), 20*time.Millisecond)
	t.Logf("%d connections; with two batches in flight %d", proxy.Connections(), 4*processes) // two are dialled ahead
}

func testHistory(t *testing.T, server *redistest.Server, url string, rounds int, pause time.Duration) {
	t.Helper()
	var all [processes]*redistest.Process
	for i := range all {
		arg := fmt.Sprint(url, " ", rounds, " ", pause)
		if i%2 == 0 {
			arg += " uncached" // so that Redis denies requests too
		}
		all[i] = redistest.StartProcess(t, historyURL, arg)
	}

	for _, p := range all {
		p.End()
	}
	entries, err := server.Client().LRange(t.Context(), "history", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}

	const fields = 7
	if len(entries)/fields < 50 || len(entries)%fields != 0 {
		t.Fatalf("the history has %d entries; want at least 50 of %d", len(entries), fields)
	}

	h := history{t: t, tats: make(map[string]int64), allowed: make(map[string][]flow), room: make(map[string]int64)}
	for e := range slices.Chunk(entries, fields) {
		h.replay(e)
		if t.Failed() {
			return
		}
	}

	allowed := 0
	for key, flows := range h.allowed {
		allowed += len(flows)
		if text := overflow(flows, h.room[key]+grain, true); text != "" {
			t.Errorf("%s: %s", key, text)
		}
	}

	t.Logf("%d calls of %d processes with %d charges, %d of them allowed", len(entries)/fields, processes, h.charges, allowed)
	if h.charges < 2000 || allowed < 200 {
		t.Errorf("%d charges, %d of them allowed; want more", h.charges, allowed)
	}
}

// history is the state of the keys after the calls so far.
type history struct {
	t       *testing.T
	now     int64
	tats    map[string]int64
	allowed map[string][]flow
	room    map[string]int64
	charges int
}

// grain is how early Redis may expire a key: its expiry is exact to the
// millisecond.
const grain = 10_000

func (h *history) replay(e []string) {
	h.t.Helper()
	now, keys, before, after, reply := h.ints(e[0])[0], strings.Fields(e[1]), strings.Fields(e[4]), strings.Fields(e[5]), h.ints(e[6])
	if now < h.now {
		h.t.Fatalf("time went back from %d to %d", h.now, now)
	}

	h.now = now
	numbers := h.ints(e[3])

	for i, key := range keys {
		switch known, ok := h.tats[key]; {
		case before[i] == "-" && ok && known > now+grain:
			h.t.Fatalf("at %d %s is gone with a TAT of %d", now, key, known)
		case before[i] == "-":
			h.tats[key] = now
		case !ok || before[i] != strconv.FormatInt(known, 10):
			h.t.Fatalf("at %d %s is %s; want %d, as the call before left it", now, key, before[i], known)
		}
	}

	type charge struct {
		key string
		params
	}

	ops := []byte(e[2])
	if len(ops) == 0 { // one charge on each key, each a request of its own
		numbers = []int64{numbers[0], numbers[1], numbers[len(numbers)-1], 0}
		for i := range keys {
			ops = append(ops, byte(i>>8), byte(i), 0, 0, 1)
		}
	}

	var group []charge
	written := make(map[string]bool)
	for i, f := range slices.Collect(slices.Chunk(ops, 5)) {
		d := numbers[4*int(f[2]):]
		group = append(group, charge{keys[int(f[0])<<8|int(f[1])], params{d[0], d[1], d[2], d[3]}})
		h.charges++
		if f[4]&1 == 0 {
			continue
		}

		// The algorithm, on all charges of the request: each finds what the charges
		// before it have taken.
		ok := true
		leads, ahead := make(map[string]int64), make([]int64, len(group))
		for j, c := range group {
			lead, seen := leads[c.key]
			if !seen {
				lead = h.tats[c.key] - now
			}

			ahead[j] = min(max(lead, 0), c.top)
			if c.unit > 0 {
				c.inc = min(c.inc, max(c.room-ahead[j], 0)/c.unit*c.unit)
				group[j] = c
			}

			if c.inc > 0 && ahead[j]+c.inc > c.room {
				ok = false
			} else if c.inc > 0 {
				leads[c.key] = ahead[j] + c.inc
			}
		}

		for j, c := range group {
			want := ahead[j]
			if !ok {
				want = -want - 1
			}
			if got := reply[i-len(group)+1+j]; got != want {
				h.t.Fatalf("at %d, %+v: got reply %d; want %d", now, c, got, want)
			}
			if ok && c.inc > 0 {
				h.allowed[c.key], h.room[c.key] = append(h.allowed[c.key], flow{now, now, c.inc}), c.room
			}
		}

		if ok {
			for key, lead := range leads {
				h.tats[key] = now + lead
				written[key] = true
			}
		}

		group = group[:0]
	}

	for i, key := range keys {
		want := before[i] // a denied request writes nothing
		if written[key] {
			want = strconv.FormatInt(h.tats[key], 10)
		}
		if after[i] != want {
			h.t.Fatalf("at %d %s was left at %s; want %s", now, key, after[i], want)
		}
		if after[i] == "-" {
			delete(h.tats, key)
		}
	}
}

func (h *history) ints(s string) (list []int64) {
	h.t.Helper()
	for f := range strings.FieldsSeq(s) {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			h.t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}
