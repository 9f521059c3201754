package slidinglog_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

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
	r := newStore(t, client, config{})
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
