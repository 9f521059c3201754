package redisstore_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// With the default settings, Redis decides from the first call on, for every kind of
// server and connection. The first call comes a second after Open: the spare
// connections have been dialled, and on TLS 1.3 they hold session tickets of the
// server, unread.
func TestOpenOnEveryKindOfServer(t *testing.T) {
	const password = "a b:@/?#%ü"
	socket := filepath.Join(t.TempDir(), "redis.sock")
	plain := redistest.Start(t, "--unixsocket", socket)
	secret := redistest.Start(t, "--requirepass", password)
	certs := redistest.NewCertificates(t)
	tls12 := redistest.StartTLS(t, certs, "--tls-protocols", "TLSv1.2")
	tls13 := redistest.StartTLS(t, certs, "--tls-protocols", "TLSv1.3", "--requirepass", password)
	mutual := redistest.StartTLS(t, certs, "--tls-auth-clients", "yes")
	cluster := redistest.StartTLSCluster(t, certs, "--requirepass", password)
	sentinel := redistest.StartSentinel(t)

	if err := plain.Client().Do(t.Context(), "acl", "setuser", "limiter", "on", ">"+password, "~rl:*",
		"+evalsha", "+eval", "+mget", "+set", "+time", "+select").Err(); err != nil {
		t.Fatal(err)
	}

	database3 := plain.Options()
	database3.DB = 3
	asUser := url.UserPassword("limiter", password).String() + "@"
	clusterURL := "rediss://" + url.UserPassword("", password).String() + "@" + strings.Join(cluster.Addrs(), ",")
	byName := strings.Replace(clusterURL, "127.0.0.1", "localhost", 1) // for which no certificate is valid

	open := func(url string) *redisstore.Store { return openStore(t, url, config{}) }
	with := func(rawURL string, set func(*tls.Config)) *redisstore.Store {
		o, err := redisstore.ClientOptions(rawURL)
		if err != nil {
			t.Fatalf("%s: %v", rawURL, err)
		}
		set(o.TLSConfig)
		client := redis.NewUniversalClient(o)
		t.Cleanup(func() { client.Close() })
		return storeOn(t, client, config{})
	}

	privateCA := func(c *tls.Config) { c.RootCAs = certs.Roots }
	failover := redis.NewFailoverClient(&redis.FailoverOptions{ // as in docs/stores.md
		MasterName:            sentinel.MasterName,
		SentinelAddrs:         sentinel.Addrs(),
		ContextTimeoutEnabled: true,
		DialTimeout:           500 * time.Millisecond,
		ReadTimeout:           500 * time.Millisecond,
		MaxRetries:            -1,
	})

	t.Cleanup(func() { failover.Close() })

	kinds := []struct {
		name  string
		store *redisstore.Store
		keys  redis.UniversalClient // for the keys that the store has written
	}{
		{"plain", open(plain.URL()), plain.Client()},
		{"scheme in capitals", open("REDIS://" + plain.Addr), plain.Client()},
		{"password", open(secret.URL()), secret.Client()},
		{"ACL user", open("redis://" + asUser + plain.Addr), plain.Client()},
		{"database 3", open("redis://" + plain.Addr + "/3"), newClient(t, database3)},
		{"ACL user, database 3", open("redis://" + asUser + plain.Addr + "/3"), newClient(t, database3)},
		{"unix socket", open("unix://" + socket), plain.Client()},
		{"unix socket, ACL user, database 3", open("unix://" + asUser + socket + "?db=3"), newClient(t, database3)},
		{"TLS 1.2", open(tls12.URL() + "?skip_verify=true"), tls12.Client()},
		{"TLS 1.2, private CA", with(tls12.URL(), privateCA), tls12.Client()},
		{"TLS 1.3", open(tls13.URL() + "?skip_verify=true"), tls13.Client()},
		{"TLS 1.3, private CA", with(tls13.URL(), privateCA), tls13.Client()},
		{"mutual TLS", with(mutual.URL(), func(c *tls.Config) {
			c.RootCAs, c.Certificates = certs.Roots, []tls.Certificate{certs.Pair}
		}), mutual.Client()},
		{"cluster over TLS", open(clusterURL + "?skip_verify=true"), cluster.Client()},
		{"cluster over TLS, private CA", with(clusterURL, privateCA), cluster.Client()},
		{"cluster over TLS, private CA, a seed by another name", with(byName, privateCA), cluster.Client()},
		{"Sentinel", storeOn(t, failover, config{}), sentinel.Client()},
	}

	ca := redistest.StartProcess(t, idleURL, certs.CAFile+" "+tls13.URL())

	time.Sleep(idle)
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			made, failed, err := takeAfterIdle(t.Context(), kind.store, kind.name)
			if made < idleCalls || failed > mayFail {
				t.Errorf("%d of %d calls failed, the last with: %v", failed, made, err)
			}
			keys := 0
			for i := range idleCalls {
				key := rediskit.AppendKey(nil, "rl:", fmt.Sprint(kind.name, " ", i), "p")
				keys += int(kind.keys.Exists(t.Context(), string(key)).Val())
			}

			if keys < made-failed {
				t.Errorf("got %d keys in Redis; want one for each of %d calls", keys, made-failed)
			}
		})
	}

	t.Run("TLS 1.3, SSL_CERT_FILE", func(t *testing.T) {
		ca.Write("take")
		if got := ca.Read(); got != "decided" {
			t.Error(got)
		}
		ca.End()
		if keys := tls13.Client().Keys(t.Context(), "rl:{process*").Val(); len(keys) < idleCalls-mayFail {
			t.Errorf("got %d keys of the process in Redis; want %d", len(keys), idleCalls)
		}
	})
}

// idle is the time between Open and the first call. go-redis dials in the background
// and does not show when session tickets have arrived. On a machine too busy to finish
// in this time, the calls are as without a pause.
const idle = time.Second

// On a busy machine a call may exceed the Timeout, so a few calls may fail. With wrong
// settings all of them fail.
const (
	idleCalls = 40
	mayFail   = idleCalls / 4
)

// takeAfterIdle makes the calls, each for its own subject, and returns how many were
// made and how many of these failed. Calls while the breaker is open are made again.
func takeAfterIdle(ctx context.Context, r *redisstore.Store, subject string) (made, failed int, last error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for made < idleCalls && ctx.Err() == nil {
		_, err := gcra.Take(ctx, r, hourly(fmt.Sprint(subject, " ", made), 10))
		if errors.Is(err, redisstore.ErrUnavailable) {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		made++
		if err != nil {
			failed, last = failed+1, err
		}
	}
	return made, failed, last
}

// idleURL makes this test binary a process that opens a store, is idle, and calls it
// when it reads a line. The value is a file of CA certificates, a space and a URL.
const idleURL = "REDISSTORE_TEST_IDLE_URL"

func idleProcess(arg string, in io.Reader, out io.Writer) error {
	caFile, rawURL, _ := strings.Cut(arg, " ")
	if err := os.Setenv("SSL_CERT_FILE", caFile); err != nil {
		return err
	}
	r, err := redisstore.Open(rawURL, config{})
	if err != nil {
		return err
	}
	defer r.Close()
	time.Sleep(idle)

	for lines := bufio.NewScanner(in); lines.Scan(); {
		if made, failed, err := takeAfterIdle(context.Background(), r, "process"); made < idleCalls || failed > mayFail {
			fmt.Fprintf(out, "%d of %d calls failed, the last with: %v\n", failed, made, err)
		} else {
			fmt.Fprintln(out, "decided")
		}
	}

	return nil
}

// The client of Open has a PoolTimeout within a short Timeout too, so a lone caller sends by itself.
func TestOpenWithAShortTimeoutSendsInline(t *testing.T) {
	r := openStore(t, redistest.Start(t).URL(), config{Timeout: 20 * time.Millisecond, DenialTTL: -1, Logger: quiet})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			_, _ = gcra.Take(context.Background(), r, hourly("a", 10))
		}
	}()

	stacks := make([]byte, 1<<20)
	redistest.Eventually(t, patience, "a caller to send", func() bool {
		all := strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n")
		return slices.ContainsFunc(all, func(stack string) bool {
			return strings.Contains(stack, "gcra.Take(") && strings.Contains(stack, ".trip(")
		})
	})
}
