package gcra_test

import (
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// A URL that is wrong is an error that says what, and never a password.
func TestOpenErrors(t *testing.T) {
	const secret = "hunter2"
	for _, tt := range []struct{ url, want string }{
		{"", "redis://"},
		{"localhost:6379", "redis://"},
		{"//localhost:6379", "redis://"},
		{":hunter2@localhost:6379", "redis://"},
		{"user:hunter2@localhost:6379", "redis://"},
		{"hunter2://localhost", "redis://"},
		{"http://localhost:6379", `"http"`},
		{"unix:///tmp/redis.sock", `"unix"`},
		{"redis://localhost:port", `host is "localhost:port"`},
		{"redis://:hunter2@localhost:port", "port"},
		{"redis://:hunter2@localhost:6379:6379", `host is "localhost:6379:6379"`},
		{"redis://:hunter2@[::1:6379", `host is "[::1:6379"`},
		{"redis://:hun/hunter2@localhost:6379", "write it as %XX"},
		{"redis://:hunter2/x@localhost:6379", "write it as %XX"},
		{"redis://:hunter2?x@localhost:6379", "write it as %XX"},
		{"redis://:hunter2#x@localhost:6379", "write it as %XX"},
		{"redis://:hunter2%zz@localhost:6379", "write it as %XX"},
		{"redis://:%hunter2@localhost:6379", "write it as %XX"},
		{"redis://:hunter2 @localhost:6379", "write it as %XX"},
		{"redis://:hunter2\x00@localhost:6379", "write it as %XX"},
		{"redis://:hunter2@localhost:6379/database", "database"},
		{"redis://:hunter2@localhost:6379/0/1", ""},
		{"redis://:hunter2@localhost:6379?pool_size=many", "pool_size"},
		{"redis://:hunter2@localhost:6379?pol_size=20", "pol_size"},
		{"redis://", "host is empty"},
		{"redis:///0", "host is empty"},
		{"redis://user:hunter2@/0", "host is empty"},
		{"redis://:6379", "host is empty"},
		{"redis://:hunter2@a:6379,", "host is empty"},
		{"redis://:hunter2@a:6379,,b:6379", "host is empty"},
		{"redis://:hunter2@,b:6379", "host is empty"},
		{"redis://:hunter2@a:6379,b:6379?pol_size=20", "pol_size"},
	} {
		r, err := gcra.Open(tt.url)
		if err == nil {
			t.Errorf("%q: got no error", tt.url)
			r.Close()
			continue
		}
		message := err.Error()
		if !strings.HasPrefix(message, "gcra: redis URL: ") || !strings.Contains(message, tt.want) {
			t.Errorf("%q: got %v; want an error with %q", tt.url, err, tt.want)
		}
		for _, part := range []string{secret, "hunter", "unter2", "%hu", "%zz", ":hun"} {
			if strings.Contains(message, part) && !strings.HasPrefix(tt.url, "hunter2:") {
				t.Errorf("%q: the error tells the password: %v", tt.url, err)
				break
			}
		}
	}
}

// A URL that is right opens a store that works, once the server is there.
func TestOpen(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "a b:@/?#%ü")
	for _, url := range []string{
		server.URL(),
		server.URL() + "?pool_size=1",
		server.URL() + "?max_retries=2&dial_timeout=5s&protocol=2",
		strings.Replace(server.URL(), "/0", "/3", 1),
		strings.Replace(server.URL(), "/0", "", 1),
	} {
		r, err := gcra.Open(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		r.Prefix, r.Timeout = "rl-"+url, patience
		got := mustTake(t, r, hourly("s", 10))[0].Result
		if got.Remaining != 9 {
			t.Errorf("%s: got %+v; want 9 remaining", url, got)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: Close: %v", url, err)
		}
		if _, err := gcra.Take(t.Context(), r, hourly("other", 10)); err == nil {
			t.Errorf("%s: Take after Close: got no error", url)
		}
	}
}

// Several hosts are the seeds of a cluster, of which one need be there.
func TestOpenCluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	addrs := cluster.Addrs()
	for _, url := range []string{
		"redis://" + strings.Join(addrs, ","),
		"redis://" + addrs[4] + "," + addrs[0] + "/0",
		"redis://" + addrs[1] + ",127.0.0.1:1?pool_size=3",
	} {
		r, err := gcra.Open(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		r.Timeout, r.Prefix = patience, url
		got := mustTake(t, r, hourly("a", 10), hourly("b", 10), hourly("c", 10), hourly("d", 10), hourly("e", 10))
		for _, c := range got {
			if c.Result.Remaining != 9 {
				t.Errorf("%s: %s: got %+v; want 9 remaining", url, c.Subject, c.Result)
			}
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: Close: %v", url, err)
		}
	}
}

// A client that the caller made stays the caller's.
func TestCloseLeavesTheClient(t *testing.T) {
	client := anyRedis(t)
	r := newStore(client)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after Close of the store, the client: %v", err)
	}
}
