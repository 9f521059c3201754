package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// drawPayment draws a payment and the state of its bucket: a value, or "" for none, and
// the TAT that it stands for. 0 stands for none, also for damaged values.
func drawPayment(t *rapid.T, now int64) (p payment, value string, at int64) {
	span := rapid.Int64Range(0, 1_000_000_000) // up to 100 s
	p = payment{id: "id1", more: span.Draw(t, "more"), least: span.Draw(t, "least"), top: span.Draw(t, "top")}
	p.room = rapid.Int64Range(0, p.top).Draw(t, "room")
	base := now
	if rapid.Bool().Draw(t, "quota") {
		const hour = time.Hour
		p.ends = now + tat.Ticks(rapid.SampledFrom([]time.Duration{-hour, hour / 2, 3 * hour / 2, 5 * hour / 2}).Draw(t, "ends in"))
		p.begins, p.previous = p.ends-tat.Ticks(hour), p.ends-2*tat.Ticks(hour)
		p.least, base = 0, p.ends
		if p.begins > now && rapid.Bool().Draw(t, "in the period before") {
			base = p.begins
		}
	}
	switch rapid.SampledFrom([]string{"none", "damaged", "lapsed", "old", "clamp", "beyond", "set"}).Draw(t, "value") {
	case "none":
		return p, "", 0
	case "damaged":
		return p, rapid.SampledFrom([]string{"nan", "-inf", "text", "-1e400", "-5"}).Draw(t, "damaged"), 0
	case "lapsed":
		at = base - 3600_000_0000 // as a key that lost its expiry
	case "old":
		at = base - rapid.Int64Range(0, 80_000_000).Draw(t, "behind")
	case "clamp":
		at = base + p.top
	case "beyond":
		at = base + p.top + rapid.Int64Range(600_000_000, 36_000_000_000).Draw(t, "beyond") // a minute: still so after the call
	case "set":
		at = base + rapid.Int64Range(0, p.top).Draw(t, "ahead")
	}
	return p, fmt.Sprint(at), at
}

// pay.lua and payStep do the same. Both are monotone in the time, which is not exactly
// known: the script's result lies between those for the times before and after the call.
func TestPayScriptIsTheModel(t *testing.T) {
	client := redistest.AnyStill(t)
	ctx := context.Background()
	clock := func() int64 {
		now, err := client.Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		return tat.At(now)
	}
	calls := 0
	rapid.Check(t, func(t *rapid.T) {
		calls++
		s := &Store{client: client, timeout: 20 * time.Second}
		s.debts.payer = "~paid.x"
		begin := clock()
		var list []payment
		var tats []int64
		var marks []marker
		for i := range rapid.IntRange(1, 4).Draw(t, "debts") {
			p, value, at := drawPayment(t, begin)
			p.key = fmt.Sprintf("pay:{%d}:%d", calls, i)
			var m marker
			mark := rapid.SampledFrom([]string{"", "id1:7", "id2:7", "id1:", "id1", "id1:nan", "text"}).Draw(t, "marker")
			if mark == "id1:7" {
				m = marker{"id1", 7}
			}
			for key, v := range map[string]string{p.key: value, p.key + s.debts.payer: mark} {
				if v != "" {
					if err := client.Set(ctx, key, v, time.Minute).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if value == "" && rapid.Bool().Draw(t, "a list") {
				if err := client.RPush(ctx, p.key, 1).Err(); err != nil {
					t.Fatal(err)
				}
			}
			list, tats, marks = append(list, p), append(tats, at), append(marks, m)
		}
		before := clock()
		args := s.payArgs(list)
		reply, err := client.Eval(ctx, payLua, stringsOf(args[3:3+2*len(list)]), args[3+2*len(list):]...).Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		after := clock()
		for i, p := range list {
			early, late := tats[i], tats[i]
			earlyMark, lateMark := marks[i], marks[i]
			paid1, ahead1 := payStep(&p, &early, &earlyMark, before)
			paid2, ahead2 := payStep(&p, &late, &lateMark, after)
			between(t, p, "paid", reply[2*i], paid1, paid2)
			between(t, p, "ahead", reply[2*i+1], ahead1, ahead2)
			got, err := client.Get(ctx, p.key).Int64()
			switch {
			case early != tats[i] && late != tats[i]:
				if err != nil {
					t.Fatal(err)
				}
				between(t, p, "TAT", got, early, late)
				expires, err := redistest.ExpireTime(ctx, client, p.key)
				if err != nil {
					t.Fatal(err)
				}
				between(t, p, "expiry", expires.Milliseconds(), (early+100_000_000)/10_000+tat.Epoch*1000, (late+100_000_000)/10_000+tat.Epoch*1000+1) // rounded
				if m := client.Get(ctx, p.key+s.debts.payer).Val(); m != fmt.Sprintf("id1:%d", reply[2*i]) {
					t.Fatalf("%+v: got marker %q; want what was paid, %d", p, m, reply[2*i])
				}
			case early == tats[i] && late == tats[i] && tats[i] != 0 && got != tats[i]:
				t.Fatalf("%+v: got TAT %d, %v; want it unchanged, %d", p, got, err, tats[i])
			}
		}
	})
}

func between(t *rapid.T, p payment, what string, got, a, b int64) {
	t.Helper()
	if got < min(a, b) || got > max(a, b) {
		t.Fatalf("%+v: got %s %d; want %d to %d", p, what, got, min(a, b), max(a, b))
	}
}

func stringsOf(list []any) (s []string) {
	for _, v := range list {
		s = append(s, fmt.Sprint(v))
	}
	return s
}
