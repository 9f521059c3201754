package faults

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// historian is the URL of the Redis that a process of [TestHistory] works on.
const historian = "RATELIMIT_TEST_HISTORIAN"

// noting is take.lua with a pen: what it was asked, when, what stood in the keys
// before and after, and what it replied goes to a list.
func noting(t *testing.T) (text, variant string) {
	t.Helper()
	b, err := os.ReadFile("../../gcra/take.lua")
	if err != nil {
		t.Fatal(err)
	}
	const clock = "\nlocal now = "
	text = string(b)
	if n := strings.Count(text, clock); n != 1 {
		t.Fatalf("take.lua has %q %d times; want once", clock, n)
	}
	return text, `local now
local function tats()
  local list = redis.call('MGET', unpack(KEYS))
  for i = 1, #KEYS do list[i] = list[i] or '-' end
  return table.concat(list, ' ')
end
local keys, plan, demands, before = table.concat(KEYS, ' '), ARGV[1], table.concat(ARGV, ' ', 2), tats()
local function take()
` + strings.Replace(text, clock, "\nnow = ", 1) + `
end
local reply, shown = take(), {}
local list = type(reply) == 'table' and reply or { reply }
for i = 1, #list do shown[i] = string.format('%.0f', list[i]) end
redis.call('RPUSH', 'history', string.format('%.0f', now), keys, plan, demands, before, tats(), table.concat(shown, ' '))
return reply`
}

// instead is a hook that sends one script for another.
type instead struct{ *strings.Replacer }

func (h instead) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h instead) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name == "eval" || name == "evalsha" {
			cmd.Args()[1] = h.Replace(cmd.Args()[1].(string))
		}
		return next(ctx, cmd)
	}
}

func (h instead) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func shaOf(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

var historyLimits = []gcra.Limit{gcra.PerSecond(500).WithBurst(20), gcra.PerMinute(600).WithBurst(50), gcra.PerDay(300)}

// TestHistorian is one of the processes of [TestHistory].
func TestHistorian(t *testing.T) {
	url := os.Getenv(historian)
	if url == "" {
		t.Skip("for TestHistory to run")
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.ReadTimeout = patience
	client := closing(t, redis.NewClient(o))
	text, variant := noting(t)
	client.AddHook(instead{strings.NewReplacer(text, variant, shaOf(text), shaOf(variant))})
	store := redisstore.New(client)
	store.Timeout = patience
	if rand.IntN(2) == 0 {
		store.NoDenialCache = true // Redis gets to see refusals, too
	}
	crowd(16, func(int) {
		for range sized(120, 2000) {
			charges := make([]gcra.Charge, 1+rand.IntN(3))
			for i := range charges {
				policy := rand.IntN(len(historyLimits))
				charges[i] = gcra.Charge{
					Subject: fmt.Sprint("s", rand.IntN(3)), Policy: fmt.Sprint("p", policy),
					Limit: historyLimits[policy], Cost: int64(rand.IntN(4)),
				}
			}
			if _, err := store.Take(context.Background(), charges); err != nil {
				t.Error(err)
			}
		}
	})
}

// step is one admission's charge of one key, as the history has it.
type step struct{ inc, room, top int64 }

// TestHistory is a check of linearizability: several processes share a real
// Redis that notes every call of the script. Played back in that order through
// the law of package gcra's comment, each call finds the TATs that the one before
// has left, replies what the law says, and leaves what the law leaves. So what
// all callers saw was the law, one request after the other. Then the promise
// itself: between any two admissions of a key no more was let in than its burst
// and what the time between them is worth.
func TestHistory(t *testing.T) {
	server := redistest.Start(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const processes = 4
	crowd(processes, func(int) {
		cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestHistorian$", "-test.count=1")
		cmd.Env = append(os.Environ(), historian+"="+server.URL())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("a process: %v\n%s", err, out)
		}
	})
	entries, err := server.Client().LRange(t.Context(), "history", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	const fields = 7
	if len(entries)/fields < 50 || len(entries)%fields != 0 {
		t.Fatalf("the history has %d entries; want at least 50 of %d", len(entries), fields)
	}

	h := history{t: t, tats: make(map[string]int64), admitted: make(map[string][]admission)}
	for e := range slices.Chunk(entries, fields) {
		h.replay(e)
		if t.Failed() {
			return
		}
	}
	pairs := h.checkPairs()
	t.Logf("%d calls of %d processes with %d charges; %d pairs of admissions", len(entries)/fields, processes, h.charges, pairs)
	if h.charges < 2000 || pairs < 10_000 {
		t.Errorf("%d charges, %d pairs of admissions; want more", h.charges, pairs)
	}
}

type admission struct{ at, inc, room int64 }

// history is what the calls so far have made of the keys.
type history struct {
	t        *testing.T
	now      int64
	tats     map[string]int64
	admitted map[string][]admission
	charges  int
}

// grain is what Redis's expiry, which is to the millisecond, may take from a
// debt: a key whose TAT has all but come may be gone.
const grain = 10_000

func (h *history) replay(e []string) {
	h.t.Helper()
	now, keys, before, after, reply := h.ints(e[0])[0], strings.Fields(e[1]), strings.Fields(e[4]), strings.Fields(e[5]), h.ints(e[6])
	if now < h.now {
		h.t.Fatalf("time went back from %d to %d", h.now, now)
	}
	h.now = now
	demands := h.ints(e[3])
	for i, key := range keys {
		switch known, ok := h.tats[key]; {
		case before[i] == "-" && ok && known > now+grain:
			h.t.Fatalf("at %d %s has gone with a TAT of %d", now, key, known)
		case before[i] == "-":
			h.tats[key] = now
		case !ok || before[i] != strconv.FormatInt(known, 10):
			h.t.Fatalf("at %d %s is %s; want %d, as the call before has left it", now, key, before[i], known)
		}
	}

	type charge struct {
		key string
		step
	}
	plan := []byte(e[2])
	if len(plan) == 0 { // one charge on each key, each an admission of its own
		for i := range keys {
			plan = append(plan, byte(i>>8), byte(i), 0, 1)
		}
	}
	var group []charge
	written := make(map[string]bool)
	for i, f := range slices.Collect(slices.Chunk(plan, 4)) {
		d := demands[3*int(f[2]):]
		group = append(group, charge{keys[int(f[0])<<8|int(f[1])], step{d[0], d[1], d[2]}})
		h.charges++
		if f[3]&1 == 0 {
			continue
		}
		// The law, on all charges of the admission: each finds what those before it
		// have taken.
		ok := true
		leads, ahead := make(map[string]int64), make([]int64, len(group))
		for j, c := range group {
			lead, seen := leads[c.key]
			if !seen {
				lead = h.tats[c.key] - now
			}
			ahead[j] = min(max(lead, 0), c.top)
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
				h.admitted[c.key] = append(h.admitted[c.key], admission{now, c.inc, c.room})
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
		want := before[i] // nothing else may touch it, not even a refusal
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

// checkPairs holds every pair of admissions of a key against the bound.
func (h *history) checkPairs() (pairs int) {
	h.t.Helper()
	for key, list := range h.admitted {
		for i := range list {
			sum := int64(0)
			for j := i; j < len(list); j++ {
				sum += list[j].inc
				pairs++
				if bound := list[j].room + list[j].at - list[i].at + grain; sum > bound {
					h.t.Fatalf("%s: %v worth of units admitted in %v; want at most %v", key,
						time.Duration(sum)*100, time.Duration(list[j].at-list[i].at)*100, time.Duration(bound)*100)
				}
			}
		}
	}
	return pairs
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
