package redisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// clientLog keeps the lines that go-redis logs about dials, but for those that name other
// hosts: the clients of other tests write to the same log, even after those tests.
type clientLog struct {
	hosts []string
	lines diagtest.Text
}

func (l *clientLog) Printf(_ context.Context, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	own := slices.ContainsFunc(l.hosts, func(h string) bool { return strings.Contains(line, h+":") })
	if strings.Contains(line, "dial") && (own || !strings.Contains(line, "dial tcp ")) {
		_, _ = fmt.Fprintln(&l.lines, line)
	}
}

// saysLogged reports whether an error says that the store has logged it.
func saysLogged(err error) bool {
	var logs interface{ Logged() bool }
	return errors.As(err, &logs) && logs.Logged()
}

// Each mistake in a set-up is one line in the log and one line of Ping's error.
func TestProblemsAreLogged(t *testing.T) {
	plain := redistest.Start(t)
	certificates := redistest.NewCertificates(t)
	overTLS := redistest.StartTLS(t, certificates)
	locked := redistest.Start(t, "--requirepass", "hunter2")
	lockedTLS := redistest.StartTLS(t, certificates, "--requirepass", "hunter2")
	host, port, err := net.SplitHostPort(plain.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica := redistest.Start(t, "--replicaof", host, port)
	full := redistest.Start(t, "--maxmemory", "1")
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	node := redistest.Start(t, "--cluster-enabled", "yes")
	noEvalsha := redistest.Start(t, "--rename-command", "EVALSHA", "")
	noEval := redistest.Start(t, "--rename-command", "EVAL", "")
	noScripts := redistest.Start(t, "--rename-command", "EVALSHA", "", "--rename-command", "EVAL", "")

	silent, err := net.Listen("tcp", "127.0.0.1:0") // never replies
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })

	const slowDial = "?dial_timeout=20s" // for a TLS handshake on a busy machine
	user := func(name, rules string) string {
		do(t, plain, "acl setuser "+name+" on >hunter2 "+rules)
		return "redis://" + name + ":hunter2@" + plain.Addr
	}

	for _, tt := range []struct {
		name, url string
		code      diag.Code
		says      string // in the line and in the error of Ping
	}{
		{"nothing listens", "redis://127.0.0.1:1", diag.RedisUnreachable, "connection refused"},
		{"nothing listens on any node", "redis://127.0.0.1:1,127.0.0.1:2", diag.RedisUnreachable, "connection refused"},
		{"no reply", "redis://" + silent.Addr().String(), diag.RedisUnreachable, "check host, port and firewall"},
		{"TLS port by redis", "redis://" + overTLS.Addr, diag.RedisUnreachable, "try rediss://"},
		{"plain port by rediss", "rediss://" + plain.Addr, diag.RedisUnreachable, "try redis://"},
		{"HTTP server by rediss", "rediss" + strings.TrimPrefix(web.URL, "http"), diag.RedisUnreachable, "try redis://"},
		{"wrong password", strings.Replace(locked.URL(), "hunter2", "hunter3", 1), diag.RedisAuth, "check user and password"},
		{"no password", "redis://" + locked.Addr, diag.RedisAuth, "want redis://user:password@host:port"},
		{"no password over TLS", "rediss://" + lockedTLS.Addr + slowDial + "&skip_verify=true", diag.RedisAuth, "requires a password"},
		{"unknown user", "redis://bob:hunter2@" + plain.Addr, diag.RedisAuth, "check user and password"},
		{"no set", user("a", "~rl:* +evalsha +eval +mget +time"), diag.RedisPermission, "ACL line of SECURITY.md"},
		{"no evalsha", user("b", "~rl:* +eval +mget +set +time"), diag.RedisPermission, "evalsha"},
		{"no keys", user("c", "~other:* +evalsha +eval +mget +set +time"), diag.RedisPermission, "with your Prefix"},
		{"no select", user("d", "~rl:* +evalsha +eval +mget +set +time") + "/3", diag.RedisPermission, "+select"},
		{"unknown CA", "rediss://" + overTLS.Addr + slowDial, diag.RedisCertificate, "SSL_CERT_FILE"},
		{"another name", "rediss://" + strings.Replace(overTLS.Addr, "127.0.0.1", "localhost", 1) + slowDial, diag.RedisCertificate, "connect to a name"},
		{"HTTP server", "redis" + strings.TrimPrefix(web.URL, "http"), diag.RedisProtocol, "check host and port"},
		{"without EVALSHA", noEvalsha.URL(), diag.RedisProtocol, "needs EVALSHA, EVAL"},
		{"without EVAL", noEval.URL(), diag.RedisProtocol, "needs EVALSHA, EVAL"},
		{"without scripts", noScripts.URL(), diag.RedisProtocol, "needs EVALSHA, EVAL"},
		{"no such database", "redis://" + plain.Addr + "/99", diag.RedisProtocol, "16 by default"},
		{"database of a cluster", "redis://" + node.Addr + "/3", diag.RedisProtocol, "use database 0"},
		{"no cluster", "redis://" + plain.Addr + "," + plain.Addr, diag.RedisProtocol, "one host"},
		{"replica", "redis://" + replica.Addr, diag.RedisRefuses, "connect to the master"},
		{"out of memory", "redis://" + full.Addr, diag.RedisRefuses, "raise maxmemory"},
		{"cluster without slots", "redis://" + node.Addr, diag.RedisRefuses, "CLUSTER INFO"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u, err := url.Parse(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			client := &clientLog{hosts: strings.Split(strings.ReplaceAll(u.Host, "localhost", ""), ",")}
			redis.SetLogger(client)
			t.Cleanup(logging.Disable) // after Close of the store
			log := new(diagtest.Text)
			r := openStore(t, tt.url, config{Logger: log.Logger()})

			take := func() {
				if _, err := gcra.Take(t.Context(), r, plenty); err != nil && !saysLogged(err) {
					t.Errorf("Take: got %v; want an error that says that it is logged", err)
				}
			}

			for range 100 {
				take()
			}

			// On a busy machine the server's error may come after the Timeout, even three
			// times in a row.
			redistest.Eventually(t, patience, "a line", func() bool {
				take()
				return len(log.Lines("code="+string(tt.code)+" ")) > 0
			})

			says := tt.says
			lines := slices.DeleteFunc(log.Lines(""), func(l string) bool {
				late := strings.Contains(l, "no answer within") || strings.Contains(l, "i/o timeout") // of a call, of a dial
				if late && tt.code == diag.RedisUnreachable {
					says = ""
				}
				return late && tt.code != diag.RedisUnreachable
			})

			level := "level=" + tt.code.Level().String()
			if len(lines) != 1 || !strings.Contains(lines[0], level) || !strings.Contains(lines[0], "code="+string(tt.code)+" ") || !strings.Contains(lines[0], says) {
				t.Fatalf("got\n%s\nwant one line, with %s, code %s and %q", strings.Join(lines, "\n"), level, tt.code, tt.says)
			}
			if !strings.Contains(lines[0], "server="+u.Host) {
				t.Errorf("got\n%s\nwant the server %s", lines[0], u.Host)
			}

			ping := r.Ping(t.Context())
			if ping == nil || !strings.HasPrefix(ping.Error(), "redisstore: redis at "+u.Host) || !strings.Contains(ping.Error(), tt.says) || strings.Contains(ping.Error(), "\n") {
				t.Errorf("Ping: got %v; want an error in one line, with %s and %q", ping, u.Host, tt.says)
			}
			if text := lines[0] + fmt.Sprint(ping); strings.Contains(text, "hunter") || strings.Contains(text, plenty.Subject) {
				t.Errorf("got\n%s\nwant no password and no key", text)
			}
			if lines := client.lines.Lines(""); len(lines) > 0 {
				t.Errorf("go-redis has logged\n%s\nwant nothing", strings.Join(lines, "\n"))
			}
		})
	}
}

// A client of ClientOptions is as quiet as Open's, and dials by what was changed afterwards.
func TestClientOfClientOptions(t *testing.T) {
	overTLS := redistest.StartTLS(t, redistest.NewCertificates(t))
	client := &clientLog{hosts: []string{"127.0.0.1"}}
	redis.SetLogger(client)
	t.Cleanup(logging.Disable)

	for _, tt := range []struct {
		addr string
		want string // in the error of Ping
	}{{"127.0.0.1:1", "connection refused"}, {overTLS.Addr, ""}} {
		o, err := redisstore.ClientOptions("redis://" + tt.addr)
		if err != nil {
			t.Fatal(err)
		}
		o.DialTimeout = 20 * time.Second // for a TLS handshake on a busy machine
		o.TLSConfig = &tls.Config{InsecureSkipVerify: true}
		c := redis.NewUniversalClient(o)
		defer c.Close()

		err = storeOn(t, c, config{Logger: quiet}).Ping(t.Context())
		if !strings.Contains(fmt.Sprint(err), tt.want) || (err == nil) != (tt.want == "") {
			t.Errorf("%s: got %v; want %q", tt.addr, err, tt.want)
		}
	}
	if lines := client.lines.Lines(""); len(lines) > 0 {
		t.Errorf("go-redis has logged\n%s\nwant nothing", strings.Join(lines, "\n"))
	}
}

// A correct set-up logs nothing, also after a second without a call, and Ping returns
// nil: with the fewest permissions, and in another database.
func TestCorrectSetUpLogsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	do(t, server, "acl setuser limiter on >hunter2 ~rl:* +evalsha +eval +mget +set +time")
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
		r := openStore(t, url, config{Logger: slog.New(slog.NewTextHandler(log, nil))})
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

	for _, key := range server.Client().Keys(t.Context(), "*ping*").Val() {
		if ttl := server.Client().PTTL(t.Context(), key).Val(); ttl == -1 || ttl > time.Minute {
			t.Errorf("%s, a key of Ping, expires in %v; want within a minute", key, ttl)
		}
	}
}

// A link that sometimes loses a reply does not open the breaker. The tenth loss within
// five minutes is logged, and the replies between are not logged as a recovery.
func TestLossyLinkIsLogged(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	r, log := defaultClientStore(t, proxy.Addr, patience)
	for lost := range 12 {
		if !answers(r) {
			t.Fatal("got no answer although no reply is lost")
		}
		if lines := log.Lines(""); lost == 9 && len(lines) > 0 {
			t.Errorf("after %d lost replies: got\n%s\nwant no line", lost, strings.Join(lines, "\n"))
		}
		proxy.DropReply(1)
		if answers(r) {
			t.Fatal("got an answer although the reply is lost")
		}
	}

	redistest.Eventually(t, patience, "the line", func() bool { return len(log.Lines("")) > 0 })
	if lines := log.Lines(""); len(lines) != 1 || !strings.Contains(lines[0], "code=redis-unreachable") {
		t.Errorf("after 12 lost replies: got\n%s\nwant one line with code redis-unreachable", strings.Join(lines, "\n"))
	}
}

// Each outage is two lines, also when it follows another at once.
func TestEachOutageIsLogged(t *testing.T) {
	server := redistest.Start(t)
	r, log := defaultClientStore(t, server.Addr, 100*time.Millisecond)
	for outage := 1; outage <= 2; outage++ {
		redistest.Eventually(t, patience, "the store to answer", func() bool { return answers(r) })
		server.Kill()
		breakerOpens(t, r)
		server.Restart()
		redistest.Eventually(t, patience, "the recovery to be logged", func() bool {
			return answers(r) && len(log.Lines("available again")) == outage
		})
		if n := len(log.Lines("code=redis-unreachable")); n != outage {
			t.Errorf("after outage %d: got\n%s\nwant %[1]d lines with code redis-unreachable", outage, strings.Join(log.Lines(""), "\n"))
		}
	}
}

// After ten outages within five minutes the next ones are not logged, and neither is their end.
func TestServerThatComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, log := defaultClientStore(t, "127.0.0.1:1", patience)
		for range 30 {
			r.Note(syscall.ECONNREFUSED, true)
			r.Note(nil, false)
		}
		synctest.Wait() // for the log
		if began, ended := len(log.Lines("code=redis-unreachable")), len(log.Lines("available again")); began != 10 || ended != 10 {
			t.Errorf("got lines on %d outages, and %d ends; want 10 and 10", began, ended)
		}
	})
}

// Failures before and during an outage do not count after it.
func TestFailuresAreCountedAnewAfterAnOutage(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	r, log := defaultClientStore(t, proxy.Addr, patience)
	answers(r)

	for range 8 {
		answers(r)
		proxy.DropReply(1)
		answers(r)
	}

	proxy.Refuse()
	breakerOpens(t, r)
	proxy.Pass()
	redistest.Eventually(t, patience, "the recovery to be logged", func() bool { return answers(r) && len(log.Lines("")) == 2 })

	for range 9 {
		answers(r)
		proxy.DropReply(1)
		answers(r)
	}

	if lines := log.Lines(""); len(lines) != 2 {
		t.Errorf("an outage, and 9 failures after it: got\n%s\nwant the two lines of the outage", strings.Join(lines, "\n"))
	}
}

// Errors that concern one call do not say that the store has logged them.
func TestErrorsOfACallAreNotLogged(t *testing.T) {
	r := newStore(t, anyRedis(t), config{})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	negative := plenty
	negative.Cost = -1
	_, ended := gcra.Take(canceled, r, plenty)
	_, invalid := gcra.Take(t.Context(), r, negative)
	for _, err := range []error{ended, invalid} {
		if err == nil || saysLogged(err) {
			t.Errorf("got %v; want an error that does not say that it is logged", err)
		}
	}
}

// stuckHandler never returns.
type stuckHandler struct{ slog.Handler }

func (stuckHandler) Handle(ctx context.Context, _ slog.Record) error { select {} }

// Take does not wait for the log.
func TestStuckLog(t *testing.T) {
	r := openStore(t, "redis://127.0.0.1:1", config{Logger: slog.New(stuckHandler{slog.DiscardHandler})}) // nothing listens there
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
