package redisstore_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// computed is how long the server has computed, however long it had to wait for a processor.
func computed(t testing.TB, client *redis.Client) (d time.Duration) {
	t.Helper()
	info := client.Info(t.Context(), "cpu").Val()
	for _, name := range []string{"used_cpu_user:", "used_cpu_sys:"} {
		_, rest, _ := strings.Cut(info, name)
		number, _, _ := strings.Cut(rest, "\r")
		seconds, err := strconv.ParseFloat(number, 64)
		if err != nil {
			t.Fatalf("INFO cpu: %s %v", name, err)
		}
		d += time.Duration(seconds * float64(time.Second))
	}
	return d
}

// A damaged list of marks never holds Redis up, and the next mark replaces it: the count of
// two stores is right again, and their checks go on.
func TestDamagedMarksHealWithoutBlocking(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()

	const key = "rl:{instances}"
	set := func(value string) func() error {
		return func() error { return client.Set(t.Context(), key, value, 0).Err() }
	}
	for name, damage := range map[string]func() error{
		"20,000 letters":             set(strings.Repeat("x", 20_000)),
		"1,000,000 letters":          set(strings.Repeat("x", 1_000_000)),
		"20,000 letters with =":      set(strings.Repeat("x", 20_000) + "=9999999999999"),
		"letters and = in turn":      set(strings.Repeat("x=", 15_000)),
		"1,000,000 digits":           set("a=" + strings.Repeat("9", 1_000_000)),
		"many marks of long ids":     set(strings.Repeat(strings.Repeat("y", 40)+"=9999999999999;", 500)),
		"20,000 bytes that are 0":    set(strings.Repeat("\x00", 20_000)),
		"1,000,000 bytes, all kinds": set(strings.Repeat("\x00\xff=;a\n", 1_000_000/6)),
		"a list":                     func() error { return client.RPush(t.Context(), key, "a", "b=1").Err() },
		"a hash":                     func() error { return client.HSet(t.Context(), key, "a", "b").Err() },
	} {
		do(t, server, "flushall")
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		before := computed(t, client)

		// Both mark themselves, and then again after two seconds of their clocks.
		a, nowA := counting(t, client)
		b, nowB := counting(t, client)
		for range 2 {
			nowA.add(2 * time.Second)
			nowB.add(2 * time.Second)
			for _, r := range []*redisstore.Store{a, b} {
				last := client.Get(t.Context(), key).Val()
				redistest.Eventually(t, patience, name+": a mark", func() bool {
					return answers(r) && client.Get(t.Context(), key).Val() != last
				})
			}
		}

		redistest.Eventually(t, patience, name+": the count 2", func() bool {
			return answers(a) && answers(b) && a.Stats().Instances == 2 && b.Stats().Instances == 2
		})

		if took := computed(t, client) - before; took > 50*time.Millisecond {
			t.Errorf("%s: Redis has computed for %v; want at most 50ms", name, took)
		}
		if n, ttl := client.StrLen(t.Context(), key).Val(), client.PTTL(t.Context(), key).Val(); n > 100 || ttl <= 0 {
			t.Errorf("%s: the value has %d bytes and expires in %v; want two marks that expire", name, n, ttl)
		}
	}
}
