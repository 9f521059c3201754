package slidinglog_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/slidinglog"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

func mustTake(t testing.TB, s gcra.Store, charges ...gcra.Charge) []gcra.Charge {
	t.Helper()
	if _, err := s.Take(context.Background(), charges); err != nil {
		t.Fatalf("Take(%+v): %v", charges, err)
	}
	return charges
}

// passed reports whether every charge that is not a shadow is allowed.
func passed(charges []gcra.Charge) bool {
	return !slices.ContainsFunc(charges, func(c gcra.Charge) bool { return !c.Result.Allowed && !c.Shadow })
}

func hourly(policy string, n, cost int64) gcra.Charge {
	return gcra.Charge{Subject: "s", Policy: policy, Limit: gcra.PerHour(n), Cost: cost}
}

// dump is all that a Redis has of its logs.
func dump(t *testing.T, client *redis.Client, prefix string) string {
	t.Helper()
	var b strings.Builder
	keys := keysOf(t, client, prefix)
	slices.Sort(keys)
	for _, key := range keys {
		expires, err := redistest.ExpireTime(t.Context(), client, key)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, key, client.ZRangeWithScores(t.Context(), key, 0, -1).Val(), expires)
	}
	return b.String()
}

// Of a pair that is refused, neither window hears, whichever refuses.
func TestRefusedPair(t *testing.T) {
	client := patient(t, redistest.Start(t))
	r := newStore(client)
	mustTake(t, r, hourly("a", 25, 25), hourly("b", 300, 7))
	before := dump(t, client, r.Prefix)
	for _, pair := range [][]gcra.Charge{
		{hourly("a", 25, 1), hourly("b", 300, 1)},
		{hourly("b", 300, 1), hourly("a", 25, 1)},
		{hourly("b", 300, 1), hourly("b", 300, 293)},
		{hourly("a", 25, 0), hourly("b", 300, 301)},
		{hourly("b", 300, 5), hourly("new", 5, 6)},
	} {
		if mustTake(t, r, pair...); passed(pair) {
			t.Errorf("%+v: got admitted", pair)
		}
		if after := dump(t, client, r.Prefix); after != before {
			t.Errorf("after a refusal of %+v:\ngot  %s\nwant %s", pair, after, before)
		}
	}
}

// A log is a sorted set of the documented form, that goes when its window is
// empty, a few milliseconds later at most.
func TestRedisValues(t *testing.T) {
	client := patient(t, redistest.Start(t))
	r := newStore(client)
	ctx := t.Context()
	for _, limit := range []gcra.Limit{gcra.PerSecond(40), gcra.PerHour(40), {Count: 40, Per: 5*time.Second + 1}, {Count: 40, Per: 366 * 24 * time.Hour}} {
		charge := gcra.Charge{Subject: "ip:192.0.2.7", Policy: limit.String(), Limit: limit, Cost: 1}
		key := r.Prefix + "{ip:192.0.2.7}:" + limit.String()
		mustTake(t, r, charge)
		mustTake(t, r, charge, charge)
		charge.Cost = 12
		mustTake(t, r, charge)
		z := client.ZRangeWithScores(ctx, key, 0, -1).Val()
		expires, err := redistest.ExpireTime(ctx, client, key)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range z {
			names = append(names, fmt.Sprint(m.Member))
		}
		if want := []string{"1000000000000000", "1000000000000001", "1000000000000002", "1000000000000003:12"}; !slices.Equal(names, want) {
			t.Fatalf("%v: got %q; want %q", limit, names, want)
		}
		ends := time.Duration(z[3].Score)*time.Microsecond + limit.Per
		if expires < ends || expires > ends+2*time.Millisecond {
			t.Errorf("%v: expires at %v; want at %v, when the window is empty", limit, expires, ends)
		}
	}
}

// Whatever is done, no key is without a TTL, and after its window none is left.
func TestRedisKeysExpire(t *testing.T) {
	client := patient(t, redistest.Start(t))
	r := newStore(client)
	for i := range 300 {
		charges := []gcra.Charge{
			{Subject: fmt.Sprint(i % 7), Policy: "a", Limit: gcra.Limit{Count: 9, Per: 50 * time.Millisecond}, Cost: int64(i % 4)},
			{Subject: fmt.Sprint(i % 5), Policy: "b", Limit: gcra.Limit{Count: 20, Per: 20 * time.Millisecond}, Cost: 1, Shadow: i%2 == 0},
		}
		if _, err := takeOrRefund(t.Context(), r, charges, i%5 == 0); err != nil {
			t.Fatal(err)
		}
		for _, key := range keysOf(t, client, r.Prefix) {
			if ttl := client.PTTL(t.Context(), key).Val(); ttl == -1 {
				t.Fatalf("call %d: %s has no TTL", i, key)
			}
		}
	}
	redistest.Eventually(t, patience, "all keys to expire", func() bool { return len(keysOf(t, client, r.Prefix)) == 0 })
}

// A limit that is no window, and a prefix that steers slots, are errors that
// say what is wrong.
func TestInvalid(t *testing.T) {
	r := newStore(redistest.Any(t))
	for _, s := range []gcra.Store{r, slidinglog.NewMemory()} {
		_, err := gcra.Take(t.Context(), s, gcra.Charge{Policy: "p", Limit: gcra.PerSecond(5).WithBurst(4), Cost: 1})
		if err == nil || !strings.Contains(err.Error(), "burst is 4; want 0 or 5") {
			t.Errorf("%T, a burst of 4 of 5: got %v; want an error that says so", s, err)
		}
		if _, err := gcra.Take(t.Context(), s, gcra.Charge{Policy: "p", Limit: gcra.PerSecond(5).WithBurst(5), Cost: 1}); err != nil {
			t.Errorf("%T, a burst of 5 of 5: got %v", s, err)
		}
	}
	r.Timeout = -time.Second
	if _, err := gcra.Take(t.Context(), r, hourly("p", 5, 1)); err == nil || !strings.Contains(err.Error(), "timeout is -1s; want 0 (50ms) or more") {
		t.Errorf("a negative Timeout: got %v; want an error that names it", err)
	}
	r.Timeout = patience
	r.Prefix = "{a}:"
	if _, err := gcra.Take(t.Context(), r, hourly("p", 5, 1)); err == nil || !strings.Contains(err.Error(), `prefix is "{a}:"`) {
		t.Errorf("prefix {a}: got %v; want an error that names it", err)
	}
}

// Logs of many units, in charges of any size, find the unit that must leave.
func TestRedisLarge(t *testing.T) {
	client := patient(t, redistest.Start(t))
	stopped := stopClock(t, client)
	c := new(clock)
	r, m := newStore(client), &slidinglog.Memory{Now: c.now}
	limit := gcra.Limit{Count: 1 << 40, Per: 14 * 24 * time.Hour}
	for i := range int64(1000) {
		cost := 1 + i*i%7
		if i%50 == 0 {
			cost = math.MaxInt32
		}
		charge := gcra.Charge{Limit: limit, Cost: cost}
		mustTake(t, r, charge)
		mustTake(t, m, charge)
		c.advance(time.Second)
		stopped.advance(time.Second)
	}
	for _, cost := range []int64{1 << 40, 1<<40 - 1, 1<<40 - math.MaxInt32, 1<<40 - 100, 1<<40 - 7, 1<<40 - 19*math.MaxInt32} {
		charge := gcra.Charge{Limit: limit, Cost: cost}
		got, want := mustTake(t, r, charge)[0].Result, mustTake(t, m, charge)[0].Result
		if got != want || got.Allowed {
			t.Errorf("cost %d: got %+v; want %+v, a refusal", cost, got, want)
		}
	}
}

// What a Redis has in the place of a log, or within it, is an error of that key
// alone, and stays as it is.
func TestRedisForeignValues(t *testing.T) {
	client := patient(t, redistest.Start(t))
	r := newStore(client)
	key := r.Prefix + "{s}:p"
	for name, put := range map[string]func() error{
		"an integer":  func() error { return client.Set(t.Context(), key, 1, 0).Err() },
		"a member":    func() error { return client.ZAdd(t.Context(), key, redis.Z{Score: 9e15, Member: "x"}).Err() },
		"not a digit": func() error { return client.ZAdd(t.Context(), key, redis.Z{Score: 9e15, Member: "1:x"}).Err() },
	} {
		client.Del(t.Context(), key)
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if _, err := gcra.Take(t.Context(), r, hourly("p", 5, 1)); err == nil {
			t.Errorf("%s: got no error", name)
		}
		mustTake(t, r, hourly("q", 5, 0))
	}
}

// calls is how many scripts a server has run since CONFIG RESETSTAT.
func calls(t testing.TB, client *redis.Client, command string) (n int) {
	t.Helper()
	for line := range strings.Lines(client.Info(context.Background(), "commandstats").Val()) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
			if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

// A script is not sent again when its reply is lost, although the client retries
// commands, and is sent again, from its text, where the server does not know it.
func TestSentOnce(t *testing.T) {
	server := redistest.Start(t)
	direct := patient(t, server)
	proxy := redistest.NewProxy(t, server.Addr)
	o := server.Options()
	o.Addr = proxy.Addr // MaxRetries 3, go-redis's default
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	r := newStore(client)
	mustTake(t, r, hourly("p", 100, 1))
	for _, refund := range []bool{false, true} {
		if err := direct.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := takeOrRefund(t.Context(), r, []gcra.Charge{hourly("q", 100, 0)}, refund); err != nil { // knows the script
			t.Fatal(err)
		}
		before := calls(t, direct, "evalsha")
		proxy.DropReply(1)
		if _, err := takeOrRefund(t.Context(), r, []gcra.Charge{hourly("p", 100, 1)}, refund); err == nil {
			t.Error("got no error for a reply that was lost")
		}
		if n := calls(t, direct, "evalsha") - before; n != 1 {
			t.Errorf("got %d EVALSHA; want 1", n)
		}
	}
	if got := mustTake(t, r, hourly("p", 100, 0))[0].Result.Remaining; got != 99 {
		t.Errorf("got %d remaining after one charge and one refund; want 99", got)
	}
	if err := direct.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if got := mustTake(t, r, hourly("p", 100, 1))[0].Result.Remaining; got != 98 {
		t.Errorf("after SCRIPT FLUSH: got %d remaining; want 98", got)
	}
}

// A Redis that does not answer costs a caller no more than Timeout, whatever
// the client's settings, and one who leaves earlier nothing.
func TestTimeout(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	o := server.Options()
	o.Addr = proxy.Addr
	client := redis.NewClient(o)
	r := slidinglog.NewRedis(client)
	t.Cleanup(func() { client.Close() })
	redistest.Eventually(t, patience, "a first answer", func() bool { _, err := r.Take(t.Context(), []gcra.Charge{hourly("p", 5, 1)}); return err == nil })
	proxy.Blackhole()
	start := time.Now()
	_, err := gcra.Take(t.Context(), r, hourly("p", 5, 1))
	if d := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || d < 50*time.Millisecond || d > time.Second {
		t.Errorf("got %v after %v; want context.DeadlineExceeded after 50ms", err, d)
	}
	r.Timeout = patience
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := gcra.Take(ctx, r, hourly("p", 5, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want context.Canceled", err)
	}
}

// The store stands wherever one is asked for: here under the middleware.
func TestMiddleware(t *testing.T) {
	for name, store := range map[string]gcra.Store{"Redis": newStore(redistest.Any(t)), "Memory": slidinglog.NewMemory()} {
		handler := ratelimit.New(ratelimit.Config{Store: store},
			ratelimit.Policy{Name: "short", Key: keyfunc.Const("partner"), Limit: gcra.Limit{Count: 3, Per: time.Minute}},
			ratelimit.Policy{Name: "long", Key: keyfunc.Const("partner"), Limit: gcra.PerHour(300)},
		)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		for i, want := range []int{204, 204, 204, 429, 429} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			left := []string{"2", "1", "0", "0", "0"}[i]
			if got := w.Header().Get("RateLimit-Remaining"); w.Code != want || got != left {
				t.Errorf("%s, request %d: got %d with %s remaining; want %d with %s", name, i, w.Code, got, want, left)
			}
			if retry := w.Header().Get("Retry-After"); want == 429 && retry != "60" && retry != "59" {
				t.Errorf("%s, request %d: Retry-After is %q; want 60, when the first leaves the window", name, i, retry)
			}
		}
	}
}

// Where subjects live on several servers, their windows count from the one time
// at which the request is made, and a refusal writes nothing on any.
func TestRingHoldsBackTogether(t *testing.T) {
	one, two := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": one.Addr, "two": two.Addr}, ReadTimeout: patience})
	t.Cleanup(func() { ring.Close() })
	r := newStore(ring)
	pair := func() []gcra.Charge {
		var charges []gcra.Charge
		for i := range 8 {
			charges = append(charges, gcra.Charge{Subject: fmt.Sprint(i), Limit: gcra.PerHour(20), Cost: 1, MaxDelay: 90 * time.Minute})
		}
		charges[3].Limit.Count = 1
		return charges
	}
	for i, want := range []time.Duration{0, time.Hour} {
		for _, c := range mustTake(t, r, pair()...) {
			if got := c.Result; !got.Allowed || got.Delay > want || got.Delay < want-time.Minute {
				t.Errorf("admission %d: got %+v; want a delay of %v", i, got, want)
			}
		}
	}
	before := dump(t, one.Client(), r.Prefix) + dump(t, two.Client(), r.Prefix)
	if refused := mustTake(t, r, pair()...); passed(refused) || refused[3].Result.Allowed {
		t.Errorf("the third: got %+v; want refused by the fourth charge", refused)
	}
	if after := dump(t, one.Client(), r.Prefix) + dump(t, two.Client(), r.Prefix); after != before {
		t.Errorf("after a refusal:\ngot  %s\nwant %s", after, before)
	}
}
