package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/outage"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// drawReport draws a report and the state of its bucket: a value, or "" for none, and
// the TAT that it stands for. 0 stands for none, also for damaged values.
func drawReport(t *rapid.T, now int64) (p outage.Report, value string, at int64) {
	span := rapid.Int64Range(0, 1_000_000_000) // up to 100 s
	p = outage.Report{ID: "id1", Amount: span.Draw(t, "amount"), Top: span.Draw(t, "top")}

	base := now
	if rapid.Bool().Draw(t, "quota") {
		const hour = time.Hour
		p.Ends = now + tat.Ticks(rapid.SampledFrom([]time.Duration{-hour, hour / 2, 3 * hour / 2, 5 * hour / 2}).Draw(t, "ends in"))
		p.Begins, p.Previous = p.Ends-tat.Ticks(hour), p.Ends-2*tat.Ticks(hour)
		base = p.Ends
		if p.Begins > now && rapid.Bool().Draw(t, "in the period before") {
			base = p.Begins
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
		at = base + p.Top
	case "beyond":
		at = base + p.Top + rapid.Int64Range(600_000_000, 36_000_000_000).Draw(t, "beyond") // a minute: still so after the call
	case "set":
		at = base + rapid.Int64Range(0, p.Top).Draw(t, "ahead")
	}

	return p, fmt.Sprint(at), at
}

// report.lua and reportStep do the same. Both are monotone in the time, which is not exactly
// known: the script's result lies between those for the times before and after the call.
func TestReportScriptIsTheModel(t *testing.T) {
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
		r := &reporter{suffix: "~reported.x"}
		begin := clock()
		var list []outage.Report

		var tats []int64
		var marks []marker
		for i := range rapid.IntRange(1, 4).Draw(t, "reports") {
			p, value, at := drawReport(t, begin)
			p.Key = fmt.Sprintf("report:{%d}:%d", calls, i)
			var m marker
			mark := rapid.SampledFrom([]string{"", "id1:7", "id2:7", "id1:", "id1", "id1:nan", "text"}).Draw(t, "marker")
			if mark == "id1:7" {
				m = marker{"id1", 7}
			}

			for key, v := range map[string]string{p.Key: value, p.Key + r.suffix: mark} {
				if v != "" {
					if err := client.Set(ctx, key, v, time.Minute).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}

			if value == "" && rapid.Bool().Draw(t, "a list") {
				if err := client.RPush(ctx, p.Key, 1).Err(); err != nil {
					t.Fatal(err)
				}
			}

			list, tats, marks = append(list, p), append(tats, at), append(marks, m)
		}

		before := clock()
		args := r.args(list)
		reply, err := client.Eval(ctx, reportLua, stringsOf(args[1:1+2*len(list)]), args[1+2*len(list):]...).Int64Slice()
		if err != nil {
			t.Fatal(err)
		}

		after := clock()
		for i, p := range list {
			early, late := tats[i], tats[i]
			earlyMark, lateMark := marks[i], marks[i]
			charged1, ahead1 := reportStep(&p, &early, &earlyMark, before)
			charged2, ahead2 := reportStep(&p, &late, &lateMark, after)
			between(t, p, "charged", reply[2*i], charged1, charged2)
			between(t, p, "ahead", reply[2*i+1], ahead1, ahead2)

			got, err := client.Get(ctx, p.Key).Int64()
			switch {
			case early != tats[i] && late != tats[i]:
				if err != nil {
					t.Fatal(err)
				}
				between(t, p, "TAT", got, early, late)
				expires, err := redistest.ExpireTime(ctx, client, p.Key)
				if err != nil {
					t.Fatal(err)
				}
				between(t, p, "expiry", expires.Milliseconds(), (early+100_000_000)/10_000+tat.Epoch*1000, (late+100_000_000)/10_000+tat.Epoch*1000+1) // rounded
				if m := client.Get(ctx, p.Key+r.suffix).Val(); m != fmt.Sprintf("id1:%d", reply[2*i]) {
					t.Fatalf("%+v: got marker %q; want what was charged, %d", p, m, reply[2*i])
				}

			case early == tats[i] && late == tats[i] && tats[i] != 0 && got != tats[i]:
				t.Fatalf("%+v: got TAT %d, %v; want it unchanged, %d", p, got, err, tats[i])
			}
		}
	})
}

func between(t *rapid.T, p outage.Report, what string, got, a, b int64) {
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
