package faults

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

var plainInteger = regexp.MustCompile(`^[0-9]{15,17}$`)

func redisTime(t *testing.T, server *redistest.Server) time.Time {
	t.Helper()
	now, err := server.Client().Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func TestFault48DamagedValueHealsAndHarmsNoOther(t *testing.T) {
	o := apart(t, "lists, hashes, text, nan, inf, negative, huge")
	const burst = 3
	server := redistest.Start(t)
	store := rigAt(t, server.URL(), config{Prefix: "rl:", Timeout: ample})

	// 3 in 300 ms: a damaged value denies requests for no longer than that.
	limit := gcra.Limit{Count: burst, Per: 300 * time.Millisecond}
	s := openSite(t, o, sitetest.Config{Config: middleware.Config{Store: store.Store}, Policies: []middleware.Policy{
		{Name: "p", Key: byClient, Limit: limit, OnFailure: middleware.FailOpen}}})

	ctx, client := t.Context(), server.Client()
	poison := map[string]func(key string) error{
		"list": func(key string) error { return client.LPush(ctx, key, "x").Err() },
		"hash": func(key string) error { return client.HSet(ctx, key, "a", "b").Err() },
		"zset": func(key string) error { return client.ZAdd(ctx, key, redis.Z{Member: "a"}).Err() },
		"stream": func(key string) error {
			return client.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"a", "b"}}).Err()
		},
	}

	for _, value := range []string{"abc", "", "nan", "-nan", "inf", "-inf", "-1", "1e308", "1e15", "0x10", "9007199254740993", "9223372036854775807", "18446744073709551616", "1.5", " 1 ", "\x00", strings.Repeat("9", 5000)} {
		poison[fmt.Sprintf("%.20q", value)] = func(key string) error { return client.Set(ctx, key, value, 0).Err() }
	}

	i := 0
	for name, put := range poison {
		i++
		subject := fmt.Sprint("client", i)
		key := "rl:{" + subject + "}:p"
		if err := put(key); err != nil {
			t.Fatal(err)
		}

		before := redisTime(t, server)
		passed := 0
		for range burst + 3 {
			a := s.Do(t, "GET /ok", "X-Client: "+subject)
			if a.StatusCode == 200 {
				passed++
			} else if retry := a.Header.Get("Retry-After"); retry != "1" {
				t.Errorf("%s: denied for %s s; want 1, the time to refill rounded up", name, retry)
			}
		}

		bound := burst + int(redisTime(t, server).Sub(before)/(limit.Per/burst))
		o.atMost(t, int64(passed), int64(bound), name)
		redistest.Eventually(t, ample, name+" to heal", func() bool { return s.Do(t, "GET /ok", "X-Client: "+subject).StatusCode == 200 })

		if value, err := client.Get(ctx, key).Result(); !errors.Is(err, redis.Nil) && (err != nil || !plainInteger.MatchString(value)) {
			t.Errorf("%s: the healed value is %.40q, %v; want digits", name, value, err)
		}
	}

	// None of them was an error, on which this policy fails open.
	expect(t, "decisions with an error", s.failed.Load(), 0)
	if lines := store.log.Lines(isAway); len(lines) != 0 {
		t.Errorf("damaged values counted as an outage: %q", lines)
	}
}
