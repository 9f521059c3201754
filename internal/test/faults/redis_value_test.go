package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

var plainInteger = regexp.MustCompile(`^[0-9]{15,17}$`)

func TestFault44NumbersAreStoredAsIntegers(t *testing.T) {
	apart(t, "TATs and TTLs that are multiples of 1e8")
	servers := map[string]*redis.Client{"redis-server": redistest.Start(t).Client(), "embedded": redistest.StartEmbedded(t)}
	for name, client := range servers {
		store := storeOn(t, client, config{Timeout: ample, DenialTTL: -1})
		for _, tt := range []struct {
			per  time.Duration
			cost int64
		}{{10 * time.Second, 1}, {10 * time.Second, 10}, {100_000 * time.Second, 1}, {100_000 * time.Second, 10}, {time.Millisecond, 100_000}, {time.Microsecond, 1}, {100_000_000 * time.Millisecond, 100}} {
			subject := fmt.Sprintf("%v*%d", tt.per, tt.cost)
			key := "rl:{" + subject + "}:"
			c := gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.Limit{Count: 1, Per: tt.per, Burst: 200_000}, Cost: tt.cost}
			if c.Limit.Validate() != nil {
				c.Limit.Burst = 200
			}
			mustTake(t, store, c) // alone: the fast path of the script
			others := []gcra.Charge{c, c}
			others[1].Policy = "q"
			mustTake(t, store, others...) // together: the general path
			for _, policy := range []string{"p", "q"} {
				value, err := client.Get(t.Context(), key+policy).Result()
				if err == redis.Nil && tt.per == time.Microsecond {
					continue // has expired
				}
				if err != nil || !plainInteger.MatchString(value) {
					t.Errorf("%s: %s%s holds %q, %v; want digits", name, key, policy, value, err)
				}
				ttl := client.PTTL(t.Context(), key+policy).Val()
				if full := time.Duration(tt.cost) * tt.per; ttl > 2*full+10*time.Second || ttl < full-ample && full > ample {
					t.Errorf("%s: %s%s lives for %v; want about %v", name, key, policy, ttl, full)
				}
			}
		}
		// The new TAT is the old one plus T, to the last digit.
		const key, day = "rl:{exact}:p", int64(24 * time.Hour / 100)
		now := ticks(time.Since(epoch))
		for _, tat := range []int64{now + 100*day + 1, now/1e8*1e8 + 100*day, now/1e10*1e10 + 100*day, now + 99*day + 7} {
			if err := client.Set(t.Context(), key, tat, 0).Err(); err != nil {
				t.Fatal(err)
			}
			mustTake(t, store, gcra.Charge{Subject: "exact", Policy: "p", Limit: gcra.PerDay(1).WithBurst(300), Cost: 1})
			expect(t, fmt.Sprint(name, ": the TAT after ", tat), client.Get(t.Context(), key).Val(), strconv.FormatInt(tat+day, 10))
		}
	}
}

// replier is a proxy to a Redis that replies to scripts itself.
type replier struct {
	addr  string
	reply atomic.Pointer[string] // nil: that of Redis
}

func startReplier(t *testing.T, target string) *replier {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &replier{addr: ln.Addr().String()}
	var conns sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		conns.Wait()
	})
	conns.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { r.serve(client, target) })
		}
	})
	return r
}

func (r *replier) serve(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(client, server) }()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if reply := r.reply.Load(); reply != nil && bytes.Contains(buf[:n], []byte("evalsha")) {
			if _, err := io.WriteString(client, *reply); err != nil {
				return
			}
		} else if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func TestFault45ReplyOfAnotherTypeIsAnError(t *testing.T) {
	o := apart(t, "floats, nil, text, short lists; RESP2 and 3")
	server := redistest.Start(t)
	for protocol, replies := range map[int][]string{
		2: {"$-1\r\n", "*-1\r\n", "+OK\r\n", "$3\r\n1.5\r\n", "*0\r\n", "*2\r\n:1\r\n:1\r\n", "*1\r\n$1\r\n1\r\n", "*1\r\n+1\r\n", "*1\r\n$-1\r\n", "*1\r\n*1\r\n:1\r\n", "*1\r\n-ERR odd\r\n", "-WRONGTYPE odd\r\n", "-ERR odd script: on @user_script:57.\r\n"},
		3: {"_\r\n", ",1.5\r\n", "#t\r\n", "(12345678901234567890\r\n", "%1\r\n+a\r\n:1\r\n", "*1\r\n,1.5\r\n", "*1\r\n_\r\n", "*1\r\n#f\r\n", "*1\r\n(99999999999999999999\r\n", "=5\r\ntxt:1\r\n"},
	} {
		between := startReplier(t, server.Addr)
		store := rigOn(t, closing(t, redis.NewClient(&redis.Options{Addr: between.addr, Protocol: protocol, ReadTimeout: ample, MaxRetries: -1})), config{Timeout: ample})
		s := openSite(t, o, sitetest.Config{Config: middleware.Config{Store: store.Store}, Policies: []middleware.Policy{
			{Name: "all", Key: sitetest.Everybody, Limit: gcra.PerDay(1_000_000).WithBurst(1000), OnFailure: middleware.FailClosed}}})
		settles(t, store)
		expect(t, "an ordinary reply", s.Do(t, "GET /ok").StatusCode, 200)
		for _, reply := range replies {
			between.reply.Store(&reply)
			for range 4 { // more than open the breaker
				expect(t, fmt.Sprintf("RESP%d: %q", protocol, reply), s.Do(t, "GET /ok").StatusCode, 503)
			}
			between.reply.Store(nil)
			// Errors of single calls do not open the breaker: the next call is sent.
			expect(t, fmt.Sprintf("RESP%d: after %q", protocol, reply), s.Do(t, "GET /ok").StatusCode, 200)
		}
		if lines := store.log.Lines(isBack); len(lines) != 0 {
			t.Errorf("RESP%d: odd replies counted as an outage: %q", protocol, lines)
		}
	}
}

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

// Peek runs no command that writes, whatever it finds: full, empty and indebted buckets,
// damaged ones and those of a clock that was ahead, which a charge would heal.
func TestFault42PeekWritesNothing(t *testing.T) {
	apart(t, "Peek at full, empty, indebted and damaged buckets")
	server := redistest.Start(t)
	store := rigAt(t, server.URL(), config{Prefix: "rl:", Timeout: ample})
	ctx, client := t.Context(), server.Client()
	limiter := middleware.Must(middleware.New(middleware.Config{Store: store.Store},
		middleware.Policy{Name: "rate", Key: byClient, Limit: gcra.PerMinute(5), MaxDelay: time.Second, MaxDebt: 10},
		middleware.Policy{Name: "quota", Key: byClient, Limit: gcra.Quota(100, gcra.Monthly), MaxDebt: 10},
		middleware.Policy{Name: "shadow", Key: byClient, Limit: gcra.PerHour(1), Shadow: true}))
	request := func(subject string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/usage", nil)
		r.Header.Set("X-Client", subject)
		return r
	}
	subjects := []string{"new", "used", "indebted", "empty"}
	limiter.Decide(request("used"))
	d := limiter.Decide(request("indebted"))
	if err := d.Settle(ctx, 12, "rate", "quota", "shadow"); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		limiter.Decide(request("empty"))
	}
	for i, value := range []string{"x", "nan", "inf", "1e308", "-1", strconv.FormatInt(ticks(time.Since(epoch)+1000*time.Hour), 10), "1" + strings.Repeat("0", 15)} {
		subjects = append(subjects, fmt.Sprint("damaged", i))
		for _, policy := range []string{"rate", "quota~month", "shadow"} {
			if err := client.Set(ctx, "rl:{"+subjects[len(subjects)-1]+"}:"+policy, value, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	lines := monitored(t, server, func() {
		for range 3 {
			for _, subject := range subjects {
				if d := limiter.Peek(request(subject)); d.Err != nil || len(d.Results) != 3 || !d.Allowed {
					t.Errorf("%s: got %+v; want three policies", subject, d)
				}
			}
		}
	})
	for _, line := range lines {
		_, command, _ := strings.Cut(line, "] ")
		name, _, _ := strings.Cut(strings.ToLower(strings.Trim(command, `"`)), `"`)
		switch name {
		case "evalsha", "eval", "time", "mget", "echo":
		default:
			t.Errorf("Peek runs %s", command)
		}
	}
	if calls := len(commands(lines, "evalsha")); calls != 3*len(subjects) {
		t.Errorf("got %d calls of %d; want one each", calls, 3*len(subjects))
	}
	if d := limiter.Decide(request("empty")); d.Allowed {
		t.Errorf("after Peek an empty bucket allows: %+v", d)
	}
}
