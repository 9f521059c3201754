package redisstore_test

import (
	"crypto/tls"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// The error of an invalid URL says what is wrong and does not contain the password.
func TestOpenErrors(t *testing.T) {
	const secret = "hunter2"
	for _, tt := range []struct{ url, want string }{
		{"", "redis://"},
		{"localhost:6379", "redis://"},
		{":hunter2@localhost:6379", "redis://"},
		{"user:hunter2://x@localhost:6379", "scheme is missing"},
		{"hunter2://localhost", "redis://"},
		{"http://localhost:6379", "scheme is missing or not known"},
		{"unix://", "unix:///run/redis/redis.sock"},
		{"unix://run/redis.sock", "unix:///run/redis/redis.sock"},
		{"unix://:hunter2/run/redis.sock", "unix:///run/redis/redis.sock"},
		{"unix://:hun/hunter2@/run/redis.sock", "as %XX"},
		{"unix:///run/user:hunter2@redis.sock?db=1", "unix://user:password@/run/redis/redis.sock"},
		{"unix://:hunter2@?db=3", "unix:///run/redis/redis.sock"},
		{"unix://:hunter2@/run/redis.sock?db=many", "database"},
		{"redis://localhost:port", "host 1 is empty or not valid"},
		{"redis://[::1:6379", "host 1 is"},
		{"redis://:hunter2", "host 1 is empty"},
		{"redis://a:6379,user:hunter2", "host 2 is"},
		{"redis://:hunter2@localhost:6379:6379", "host 1 is"},
		{"redis://:hunter2@[::1:6379", "host 1 is"},
		{"redis://:hun/hunter2@localhost:6379", "write it as %XX"},
		{"redis://:a@b?hunter2=x@localhost:6379", "write it as %XX"},
		{"redis://u:hunter2@h1:6379,u:hunter2@h2:6379", "stand once"},
		{"redis://u:hun,ter2@h", "a comma in them as %2C"},
		{"redis://h1,u:hunter2@h2", "stand once"},
		{"redis://h1:6379,u:hunter2@h2:6379", "stand once"},
		{"redis://u:hunter2@h1,h2#x", "host 2 is"},
		{"redis://u:hunter2@h1,h%20", "host or database holds a character"},
		{"redis://h/hunter2", "invalid database number"},
		{"redis:hunter2", "is missing"},
		{"redis://localhost:70011", "a port of 1 to 65535"},
		{"redis://:hunter2?x@localhost:6379", "write it as %XX"},
		{"redis://user:123?hunter2@a:6379,b:6379", "write it as %XX"},
		{"redis://:hunter2#x@localhost:6379", "write it as %XX"},
		{"redis://:hunter2@localhost:6379/1#?pool_size=20", "write it as %XX"},
		{"redis://:hunter2%zz@localhost:6379", "write it as %XX"},
		{"redis://:%hunter2@localhost:6379", "write it as %XX"},
		{"redis://:hunter2@localhost:6379/database", "database"},
		{"redis://:hunter2@localhost:6379/0/1", "invalid URL path"},
		{"redis://:hunter2@localhost:6379?pool_size=many", "invalid pool_size number"},
		{"redis://a?db=0?password=hunter2", "invalid database number"},
		{"redis://a?pool_size=hunter2", "invalid pool_size number"},
		{"redis://a?dial_timeout=hunter2", "invalid dial_timeout duration"},
		{"rediss://a?skip_verify=hunter2", "invalid skip_verify boolean"},
		{"redis://a/hunter2%zz", "database holds a character"},
		{"redis://:hunter2@localhost:6379?pol_size=20", "unexpected option: pol_size; want parameters of redis.ParseURL"},
		{"redis://:hunter2@a?pool_size=-1", "pool_size is -1; want 0 to 100000"},
		{"redis://:hunter2@a?pool_size=99999999999999", "pool_size is 99999999999999; want 0 to 100000"},
		{"redis://:hunter2@a?pipeline_pool_size=99999999999", "pipeline_pool_size is 99999999999; want -1 to 100000"},
		{"redis://:hunter2@a?max_retries=-2", "max_retries is -2; want -1 to"},
		{"redis://:hunter2@a/-1", "db is -1; want 0 to"},
		{"redis://:hunter2@a?protocol=9", "protocol is 9; want 2 or 3"},
		{"redis://:hunter2@a?pool_timeout=-1s", "pool_timeout is 0 or less"},
		{"redis://:hunter2@a,b?dial_timeout=0", "dial_timeout is 0 or less"},
		{"redis://", "host 1 is empty"},
		{"redis://:6379", "host 1 is empty"},
		{"redis://:hunter2@a:6379,", "host 2 is empty"},
		{"redis://:hunter2@a:6379,,b:6379", "host 2 is empty"},
		{"redis://:hunter2@a:6379,b:6379?pol_size=20", "pol_size"},
		{"redis://:hunter2@a:6379,b:6379/3", `database is 3; want 0`},
		{"redis://:hunter2@a:6379,b:6379?db=3", "database is 3"},
		{"redis://:hunter2@a:6379,b:6379?skip_verify=true", "skip_verify"},
		{"redis://:hunter2@a:6379?tls=true", "rediss:// for TLS"},
		{"redis://:hunter2@a:6379,b:6379/?pool_size=3&ssl=1", "rediss:// for TLS"},
		{"rediss://:hunter2@a:6379,b:6379?skip_verify=maybe", "skip_verify"},
		{"redis://:hunter2@a:6379,b:6379?pool_size=%zz", "a parameter holds a character"},
	} {
		r, err := redisstore.Open(tt.url, config{})
		if err == nil {
			t.Errorf("%q: got no error", tt.url)
			r.Close()
			continue
		}

		message := err.Error()
		if !strings.HasPrefix(message, "redisstore: redis URL: ") || !strings.Contains(message, tt.want) {
			t.Errorf("%q: got %v; want an error with %q", tt.url, err, tt.want)
		}
		for _, part := range []string{secret, "hunter", "unter2", "%hu", "%zz", ":hun"} {
			if strings.Contains(message, part) {
				t.Errorf("%q: the error contains the password: %v", tt.url, err)
				break
			}
		}
	}
}

// Every parameter of a URL is in the options, for one server and for a cluster.
func TestOptionsParameters(t *testing.T) {
	const common = "?protocol=3&client_name=limiter&max_retries=2&min_retry_backoff=1s&max_retry_backoff=3s&dial_timeout=4s&read_timeout=5s&write_timeout=6s" +
		"&pool_fifo=true&pool_size=7&max_concurrent_dials=4&pool_timeout=8s&min_idle_conns=3&max_idle_conns=5&max_active_conns=9" +
		"&pipeline_pool_size=11&pipeline_read_buffer_size=12&pipeline_write_buffer_size=13" +
		"&conn_max_idle_time=14s&conn_max_lifetime=15s&conn_max_lifetime_jitter=10s"

	options := func(rawURL string) *redis.UniversalOptions {
		o, err := redisstore.ClientOptions(rawURL)
		if err != nil {
			t.Fatalf("%s: %v", rawURL, err)
		}
		return o
	}

	// set returns the fields that are not zero, as text.
	set := func(options any) map[string]string {
		fields := make(map[string]string)
		for field, value := range reflect.ValueOf(options).Elem().Fields() {
			switch {
			case !field.IsExported() || value.IsZero():
			case field.Name == "TLSConfig":
				c := value.Interface().(*tls.Config)
				fields[field.Name] = fmt.Sprint(c.ServerName, c.InsecureSkipVerify, c.MinVersion)
			default:
				fields[field.Name] = fmt.Sprint(value.Interface())
			}
		}

		return fields
	}

	const one = "rediss://user:secret@host:6380/3" + common + "&skip_verify=1"
	parsed, err := redis.ParseURL(one)
	if err != nil {
		t.Fatal(err)
	}
	parsed.Network = "" // NewClient finds it

	got := set(options(one).Simple())
	for name, want := range set(parsed) {
		if got[name] != want {
			t.Errorf("one server: %s is %q; want %q", name, got[name], want)
		}
	}

	several := options("rediss://user:secret@host:6380,host,[fe80::1%25eth0]" + common + "&skip_verify=true")
	if want := []string{"host:6380", "host:6379", "[fe80::1%eth0]:6379"}; !slices.Equal(several.Addrs, want) {
		t.Errorf("cluster: got the addresses %q; want %q", several.Addrs, want)
	}
	got = set(several.Simple())
	for name, want := range set(parsed) {
		if name != "DB" && name != "TLSConfig" && got[name] != want {
			t.Errorf("cluster: %s is %q; want %q", name, got[name], want)
		}
	}
	if c := several.TLSConfig; c.ServerName != "" || !c.InsecureSkipVerify || c.MinVersion != tls.VersionTLS12 {
		t.Errorf("cluster: got TLS %+v; want any name, unverified, 1.2 or newer", c)
	}

	if o := options("unix://user:secret@/run/redis@1.sock?db=3"); o.Addrs[0] != "/run/redis@1.sock" || o.Username != "user" || o.Password != "secret" || o.DB != 3 || len(o.Addrs) != 1 {
		t.Errorf("unix socket: got %q, user %q, password %q, database %d", o.Addrs, o.Username, o.Password, o.DB)
	}
	if o := options("redis://host"); o.PipelinePoolSize != -1 || o.MinIdleConns < 2 {
		t.Errorf("got a pool of %d for pipelines, and %d spare connections; want one pool with 2 or more", o.PipelinePoolSize, o.MinIdleConns)
	}
	if o := options("redis://host"); o.Protocol != 2 || o.TLSConfig != nil || o.ConnMaxIdleTime != 3*time.Minute {
		t.Errorf("got protocol %d, TLS %v, connections idle for %v; want 2, none, 3m", o.Protocol, o.TLSConfig, o.ConnMaxIdleTime)
	}
	for rawURL, want := range map[string]string{
		"rediss://a":              "a",
		"rediss://a:6379,a:6380":  "a", // one host: its name is in all certificates
		"rediss://a:6379,b:6379":  "",  // each node has its own certificate
		"rediss://[::1]:1,[::1]":  "::1",
		"rediss://[::1]:1,[::2]":  "",
		"REDISS://a.example:6379": "a.example",
	} {
		if got := options(rawURL).TLSConfig.ServerName; got != want {
			t.Errorf("%s: got the server name %q; want %q", rawURL, got, want)
		}
	}
}

// A store opened by a valid URL works until it is closed.
func TestOpen(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "a b:@/?#%ü")
	for _, url := range []string{
		server.URL(),
		server.URL() + "?pool_size=1",
		server.URL() + "?max_retries=2&dial_timeout=5s&protocol=2",
		strings.Replace(server.URL(), "/0", "/3", 1),
		strings.Replace(server.URL(), "/0", "", 1),
	} {
		r := openStore(t, url, config{Prefix: "rl-" + url, Timeout: patience})
		got := gcratest.MustTake(t, r, hourly("s", 10))[0].Result
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

// Several hosts are the seeds of a cluster. One that answers is enough.
func TestOpenCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	addrs := cluster.Addrs()
	for _, url := range []string{
		"redis://" + strings.Join(addrs, ","),
		"redis://" + addrs[4] + "," + addrs[0] + "/0",
		"redis://" + addrs[1] + ",127.0.0.1:1?pool_size=3",
	} {
		r := openStore(t, url, config{Prefix: url, Timeout: patience})
		got := gcratest.MustTake(t, r, hourly("a", 10), hourly("b", 10), hourly("c", 10), hourly("d", 10), hourly("e", 10))
		for _, c := range got {
			if c.Result.Remaining != 9 {
				t.Errorf("%s: %s: got %+v; want 9 remaining", url, c.Subject, c.Result)
			}
		}
	}
}

// The client of a cluster would give up after half a second. If the URL says so, it does.
func TestTimeoutOnACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for params, want := range map[string]bool{"": true, "?read_timeout=500ms": false} {
		r := openStore(t, "redis://"+strings.Join(cluster.Addrs(), ",")+params, config{Timeout: patience, Logger: quiet})
		gcratest.MustTake(t, r, hourly("s", 10))

		for _, node := range cluster.Nodes {
			if err := node.Client().Do(t.Context(), "client", "pause", 1000, "all").Err(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Take(t.Context(), []gcra.Charge{hourly("s", 10)}); (err == nil) != want {
			t.Errorf("Redis answers after 1 s, with a Timeout of %v, %q: got %v; want an answer: %v", patience, params, err, want)
		}
	}
}

// Close of a store from New leaves its client open.
func TestCloseLeavesTheClient(t *testing.T) {
	client := anyRedis(t)
	r := newStore(t, client, config{})
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after Close of the store, the client: %v", err)
	}
}
