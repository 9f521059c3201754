package slidinglog_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// A value that is not a log, or a malformed member, is an error for that key alone.
func TestRedisForeignValues(t *testing.T) {
	client := patient(t, redistest.Start(t))
	r := newStore(client)
	key := r.Prefix + "{s}:p"
	for name, put := range map[string]func() error{
		"an integer":   func() error { return client.Set(t.Context(), key, 1, 0).Err() },
		"a sorted set": func() error { return client.ZAdd(t.Context(), key, redis.Z{Score: 9e15, Member: "1"}).Err() },
		"a text":       func() error { return client.RPush(t.Context(), key, "x").Err() },
		"texts":        func() error { return client.RPush(t.Context(), key, "x", "y", "z").Err() },
		"a bad number": func() error { return client.RPush(t.Context(), key, "x", "9000000000000000", "1").Err() },
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

// A script is not sent again if its reply is lost, although the client retries other commands. It is
// sent again with its text if the server does not have it.
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
		redistest.ResetStats(t, direct)
		if _, err := takeOrRefund(t.Context(), r, []gcra.Charge{hourly("q", 100, 0)}, refund); err != nil { // loads the script
			t.Fatal(err)
		}
		before := redistest.Calls(t, direct, "evalsha")
		proxy.DropReply(1)
		if _, err := takeOrRefund(t.Context(), r, []gcra.Charge{hourly("p", 100, 1)}, refund); err == nil {
			t.Error("a lost reply: got no error")
		}
		if n := redistest.Calls(t, direct, "evalsha") - before; n != 1 {
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
