package slidinglog_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
)

// Ping returns what is wrong with a server. Its key expires.
func TestPing(t *testing.T) {
	server := redistest.Start(t)
	rules := "~sl-* +evalsha +eval +time +lrange +lindex +llen +lset +ltrim +rpush +rpushx +pexpireat +del"
	user := func(name, rules string) *slidinglog.Store {
		args := []any{"acl", "setuser", name, "on", ">hunter2"}
		for rule := range strings.FieldsSeq(rules) {
			args = append(args, rule)
		}

		if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		o := server.Options()
		o.Username, o.Password = name, "hunter2"
		client := redis.NewClient(o)
		t.Cleanup(func() { client.Close() })
		return newStore(t, client, config{})
	}

	if err := user("all", rules).Ping(t.Context()); err != nil {
		t.Errorf("with the ACL line of SECURITY.md: %v", err)
	}

	redistest.Eventually(t, patience, "the key to expire", func() bool {
		n, err := server.Client().DBSize(t.Context()).Result()
		return err == nil && n == 0
	})
	want := "slidinglog: redis at " + server.Addr + " denies the user a command or a key: "
	if err := user("few", strings.Replace(rules, "+rpush ", "", 1)).Ping(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("without RPUSH: got %v; want %s...", err, want)
	}

	server.Kill()
	want = "slidinglog: redis at " + server.Addr + " does not answer: connection refused; "
	if err := newStore(t, server.Client(), config{}).Ping(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("without a server: got %v; want %s...", err, want)
	}
}

func TestPingCluster(t *testing.T) {
	t.Parallel()
	client := redistest.StartCluster(t).Client()
	r := newStore(t, client, config{})
	redistest.Eventually(t, patience, "the cluster to answer", func() bool { return r.Ping(t.Context()) == nil })
}
