package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// clientLog counts the lines of go-redis about dials.
type clientLog struct {
	mu sync.Mutex
	n  int
}

func (l *clientLog) Printf(_ context.Context, format string, _ ...any) {
	if strings.Contains(format, "dial") {
		l.mu.Lock()
		l.n++
		l.mu.Unlock()
	}
}

// Each set-up that cannot work says so in one line, with the default settings,
// and so does Ping.
func TestProblemsAreLogged(t *testing.T) {
	plain := redistest.Start(t)
	certificates := redistest.NewCertificates(t)
	overTLS := redistest.StartTLS(t, certificates)
	locked := redistest.Start(t, "--requirepass", "hunter2")
	host, port, err := net.SplitHostPort(plain.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica := redistest.Start(t, "--replicaof", host, port)
	full := redistest.Start(t, "--maxmemory", "1")
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	node := redistest.Start(t, "--cluster-enabled", "yes")
	nobody, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never says anything
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nobody.Close() })

	const patiently = "?dial_timeout=20s" // a TLS handshake on a busy machine
	user := func(name, rules string) string {
		serverSays(t, plain, append([]string{"acl", "setuser", name, "on", ">hunter2"}, strings.Fields(rules)...)...)
		return "redis://" + name + ":hunter2@" + plain.Addr
	}
	for _, tt := range []struct {
		name, url string
		code      diag.Code
		says      string // in the line and in the error of Ping
	}{
		{"nothing listens", "redis://127.0.0.1:1", diag.RedisUnreachable, "connection refused"},
		{"nothing listens on any node", "redis://127.0.0.1:1,127.0.0.1:2", diag.RedisUnreachable, "connection refused"},
		{"nobody answers", "redis://" + nobody.Addr().String(), diag.RedisUnreachable, "check host, port and firewall"},
		{"TLS port by redis", "redis://" + overTLS.Addr, diag.RedisUnreachable, "try rediss://"},
		{"plain port by rediss", "rediss://" + plain.Addr, diag.RedisUnreachable, "try redis://"},
		{"HTTP server by rediss", "rediss" + strings.TrimPrefix(web.URL, "http"), diag.RedisUnreachable, "try redis://"},
		{"wrong password", strings.Replace(locked.URL(), "hunter2", "hunter3", 1), diag.RedisAuth, "check user and password"},
		{"no password", "redis://" + locked.Addr, diag.RedisAuth, "requires a password"},
		{"unknown user", "redis://bob:hunter2@" + plain.Addr, diag.RedisAuth, "check user and password"},
		{"no set", user("a", "~rl:* +evalsha +eval +mget +time"), diag.RedisPermission, "ACL line of SECURITY.md"},
		{"no evalsha", user("b", "~rl:* +eval +mget +set +time"), diag.RedisPermission, "evalsha"},
		{"no keys", user("c", "~other:* +evalsha +eval +mget +set +time"), diag.RedisPermission, "with your Prefix"},
		{"no select", user("d", "~rl:* +evalsha +eval +mget +set +time") + "/3", diag.RedisPermission, "+select"},
		{"unknown CA", "rediss://" + overTLS.Addr + patiently, diag.RedisCertificate, "SSL_CERT_FILE"},
		{"another name", "rediss://" + strings.Replace(overTLS.Addr, "127.0.0.1", "localhost", 1) + patiently, diag.RedisCertificate, "connect to a name"},
		{"HTTP server", "redis" + strings.TrimPrefix(web.URL, "http"), diag.RedisProtocol, "check host and port"},
		{"no such database", "redis://" + plain.Addr + "/99", diag.RedisProtocol, "16 by default"},
		{"database of a cluster", "redis://" + node.Addr + "/3", diag.RedisProtocol, "database 0 only"},
		{"no cluster", "redis://" + plain.Addr + "," + plain.Addr, diag.RedisProtocol, "one host"},
		{"replica", "redis://" + replica.Addr, diag.RedisRefuses, "connect to the master"},
		{"out of memory", "redis://" + full.Addr, diag.RedisRefuses, "raise maxmemory"},
		{"cluster without slots", "redis://" + node.Addr, diag.RedisRefuses, "CLUSTER INFO"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := new(clientLog)
			redis.SetLogger(client)
			defer logging.Enable()
			r, err := redisstore.Open(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			log := new(diagtest.Text)
			r.Logger = slog.New(slog.NewTextHandler(log, nil))

			take := func() {
				_, err := gcra.Take(t.Context(), r, plenty)
				var logs interface{ Logged() bool }
				if err != nil && (!errors.As(err, &logs) || !logs.Logged()) {
					t.Errorf("Take: got %v; want an error that says that it is logged", err)
				}
			}
			for range 100 {
				take()
			}
			// On a busy machine the server may take longer than the Timeout to say what
			// is wrong, even three times in a row.
			redistest.Eventually(t, patience, "a line", func() bool {
				take()
				return len(log.Lines("code="+string(tt.code)+" ")) > 0
			})
			says := tt.says
			lines := slices.DeleteFunc(log.Lines(""), func(l string) bool {
				late := strings.Contains(l, "no answer within")
				if late && tt.code == diag.RedisUnreachable {
					says = ""
				}
				return late && tt.code != diag.RedisUnreachable
			})
			level := "level=" + tt.code.Level().String()
			if len(lines) != 1 || !strings.Contains(lines[0], level) || !strings.Contains(lines[0], "code="+string(tt.code)+" ") || !strings.Contains(lines[0], says) {
				t.Fatalf("got\n%s\nwant one line, with %s, code %s and %q", strings.Join(lines, "\n"), level, tt.code, tt.says)
			}
			u, err := url.Parse(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(lines[0], "server="+u.Host) {
				t.Errorf("got\n%s\nwant the server %s", lines[0], u.Host)
			}

			ping := r.Ping(t.Context())
			if ping == nil || !strings.HasPrefix(ping.Error(), "redisstore: redis at "+u.Host) || !strings.Contains(ping.Error(), tt.says) || strings.Contains(ping.Error(), "\n") {
				t.Errorf("Ping: got %v; want an error in one line, with %s and %q", ping, u.Host, tt.says)
			}
			if told := lines[0] + fmt.Sprint(ping); strings.Contains(told, "hunter") || strings.Contains(told, plenty.Subject) {
				t.Errorf("got\n%s\nwant no password and no key", told)
			}
			client.mu.Lock()
			defer client.mu.Unlock()
			if client.n > 0 {
				t.Errorf("the client has logged %d lines of its own; want none", client.n)
			}
		})
	}
}

// What works logs nothing, also after a second without a call, and Ping has
// nothing to say: as the user with the fewest rights, and in another database.
func TestNothingToLog(t *testing.T) {
	server := redistest.Start(t)
	serverSays(t, server, "acl", "setuser", "limiter", "on", ">hunter2", "~rl:*", "+evalsha", "+eval", "+mget", "+set", "+time")
	certificates := redistest.NewCertificates(t)
	overTLS := redistest.StartTLS(t, certificates)
	log := new(diagtest.Text)
	var stores []*redisstore.Store
	for _, url := range []string{
		"redis://" + server.Addr,
		"redis://" + server.Addr + "/3",
		"redis://limiter:hunter2@" + server.Addr,
		"rediss://" + overTLS.Addr + "?skip_verify=true&protocol=2&dial_timeout=20s",
	} {
		r, err := redisstore.Open(url)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		r.Logger = slog.New(slog.NewTextHandler(log, nil))
		if err := r.Ping(t.Context()); err != nil {
			t.Errorf("%s: Ping: %v", url, err)
		}
		stores = append(stores, r)
	}
	for round := range 2 {
		if round > 0 {
			time.Sleep(time.Second)
		}
		for _, r := range stores {
			for range 50 {
				_, _ = gcra.Take(t.Context(), r, plenty) // may take longer than the Timeout on a busy machine
			}
		}
	}
	for _, l := range log.Lines("") {
		if !strings.Contains(l, "no answer within") && !strings.Contains(l, "available again") {
			t.Errorf("got %s; want no line", l)
		}
	}
	redistest.Eventually(t, patience, "the keys of Ping to expire", func() bool {
		keys, err := server.Client().Keys(t.Context(), "*ping*").Result()
		return err == nil && len(keys) == 0
	})
}

// A link that loses a reply now and then never opens the breaker. The tenth
// loss within five minutes is worth a line, and the replies between are no
// recovery.
func TestLossyLinkIsLogged(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	r, log := impatient(t, proxy.Addr)
	r.Timeout = patience
	for lost := range 12 {
		if !works(r) {
			t.Fatal("does not work while no reply is lost")
		}
		if lines := log.Lines(""); lost == 9 && len(lines) > 0 {
			t.Errorf("after %d lost replies: got\n%s\nwant no line", lost, strings.Join(lines, "\n"))
		}
		proxy.DropReply(1)
		if works(r) {
			t.Fatal("works although a reply is lost")
		}
	}
	redistest.Eventually(t, patience, "the line", func() bool { return len(log.Lines("")) > 0 })
	if lines := log.Lines(""); len(lines) != 1 || !strings.Contains(lines[0], "code=redis-unreachable") {
		t.Errorf("after 12 lost replies: got\n%s\nwant one line with code redis-unreachable", strings.Join(lines, "\n"))
	}
}

// Each outage has its two lines, also when it follows the one before at once.
func TestEachOutageIsLogged(t *testing.T) {
	server := redistest.Start(t)
	r, log := impatient(t, server.Addr)
	for outage := 1; outage <= 2; outage++ {
		redistest.Eventually(t, patience, "the store to work", func() bool { return works(r) })
		server.Kill()
		redistest.Eventually(t, patience, "the store to leave the server alone", func() bool {
			_, err := gcra.Take(t.Context(), r, plenty)
			return errors.Is(err, redisstore.ErrUnavailable)
		})
		server.Restart()
		redistest.Eventually(t, patience, "the recovery to be logged", func() bool {
			return works(r) && len(log.Lines("available again")) == outage
		})
		if n := len(log.Lines("code=redis-unreachable")); n != outage {
			t.Errorf("after outage %d: got\n%s\nwant %[1]d lines with code redis-unreachable", outage, strings.Join(log.Lines(""), "\n"))
		}
	}
}

// The failures of an outage are not counted after it.
func TestOneFailureAfterAnOutage(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	r, log := impatient(t, proxy.Addr)
	r.Timeout = patience
	works(r)
	for range 8 {
		works(r)
		proxy.DropReply(1)
		works(r)
	}
	proxy.Refuse()
	redistest.Eventually(t, patience, "the store to leave the server alone", func() bool {
		_, err := gcra.Take(t.Context(), r, plenty)
		return errors.Is(err, redisstore.ErrUnavailable)
	})
	proxy.Pass()
	redistest.Eventually(t, patience, "the recovery to be logged", func() bool { return works(r) && len(log.Lines("")) == 2 })
	for range 9 {
		works(r)
		proxy.DropReply(1)
		works(r)
	}
	if lines := log.Lines(""); len(lines) != 2 {
		t.Errorf("an outage, and 9 failures after it: got\n%s\nwant the two lines of the outage", strings.Join(lines, "\n"))
	}
}

// Errors of one call are the caller's to log.
func TestNotLogged(t *testing.T) {
	r := newStore(anyRedis(t))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	bad := plenty
	bad.Cost = -1
	_, leaves := gcra.Take(canceled, r, plenty)
	_, invalid := gcra.Take(t.Context(), r, bad)
	for _, err := range []error{leaves, invalid} {
		var logs interface{ Logged() bool }
		if err == nil || errors.As(err, &logs) && logs.Logged() {
			t.Errorf("got %v; want an error that does not say that it is logged", err)
		}
	}
}

// The error of a server that does not know AUTH repeats the password.
func TestErrorsWithoutPassword(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for b := make([]byte, 4096); ; {
					if _, err := conn.Read(b); err != nil {
						return
					}
					if _, err := io.WriteString(conn, "-ERR unknown command 'AUTH', with args beginning with: 'bob' 'hunter2' \r\n"); err != nil {
						return
					}
				}
			}()
		}
	}()
	r, err := redisstore.Open("redis://bob:hunter2@" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Logger, r.Timeout = slog.New(slog.DiscardHandler), patience
	_, err = gcra.Take(t.Context(), r, plenty)
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "unknown command 'AUTH'") {
		t.Errorf("got %v; want the error without the password", err)
	}
}

// stuck is a log that nobody reads.
type stuck struct{ slog.Handler }

func (stuck) Handle(ctx context.Context, _ slog.Record) error { select {} }

// No caller waits for a log.
func TestStuckLog(t *testing.T) {
	r, err := redisstore.Open("redis://127.0.0.1:1") // nothing listens there
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Logger = slog.New(stuck{slog.DiscardHandler})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 10 {
			_, _ = gcra.Take(context.Background(), r, plenty)
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("Take waits for the log")
	}
}
