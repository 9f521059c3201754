package redisstore_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Ping calls every master of a cluster, and its error is one line for each that fails.
func TestPingCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	r := openStore(t, "redis://"+strings.Join(cluster.Addrs(), ","), config{Logger: quiet})
	redistest.Eventually(t, patience, "the cluster to answer", func() bool { return r.Ping(t.Context()) == nil })
	denied := cluster.Nodes[1]
	do(t, denied, "acl setuser default -set")

	want := "redisstore: redis at " + denied.Addr + " denies the user a command or a key: "
	if err := r.Ping(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("one master denies SET: got %v; want one line, %s...", err, want)
	}

	// A client of one node has answers for some keys.
	alone, log := defaultClientStore(t, cluster.Nodes[0].Addr, patience)
	for i := range 100 {
		c := plenty
		c.Subject = fmt.Sprint(i)
		_, _ = gcra.Take(t.Context(), alone, c)
	}

	redistest.Eventually(t, patience, "the line", func() bool { return len(log.Lines("")) > 0 })
	if lines := log.Lines(""); len(lines) != 1 || !strings.Contains(lines[0], "level=ERROR") || !strings.Contains(lines[0], "redis://host1:6379,host2:6379") {
		t.Errorf("a client of one node: got\n%s\nwant one line with the form of the right URL", strings.Join(lines, "\n"))
	}
}

// Ping calls every shard of a ring.
func TestPingRing(t *testing.T) {
	good, bad := redistest.Start(t), redistest.Start(t, "--requirepass", "hunter2")
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": good.Addr, "b": bad.Addr}, HeartbeatFrequency: time.Hour})
	t.Cleanup(func() { ring.Close() })
	want := "redisstore: redis at " + bad.Addr + " requires a password: "
	if err := storeOn(t, ring, config{}).Ping(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v; want one line, %s...", err, want)
	}
}

// A ring that has found all of its shards down does not work.
func TestPingRingIsDown(t *testing.T) {
	down := redistest.Start(t)
	down.Kill()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": down.Addr}, HeartbeatFrequency: 10 * time.Millisecond})
	t.Cleanup(func() { ring.Close() })
	redistest.Eventually(t, patience, "the ring to be down", func() bool { return ring.Len() == 0 })
	want := "redisstore: redis at each address of the ring does not answer"
	if err := storeOn(t, ring, config{}).Ping(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v; want %s", err, want)
	}
}

// Ping calls a server whose breaker is open, and is not bounded by the Timeout.
func TestPingWhileTheBreakerIsOpen(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	r := openStore(t, "redis://"+proxy.Addr, config{Logger: quiet})
	proxy.Delay(100 * time.Millisecond)
	breakerOpens(t, r)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.Ping(ctx); err != nil {
		t.Errorf("got %v; want nil: the server answers", err)
	}
}

// A store that was opened before its server runs works as soon as it does: failed
// dials leave no connection in the pool.
func TestPingOfAServerThatStartsLate(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	r := openStore(t, "redis://"+server.Addr, config{Timeout: patience, Logger: quiet})
	for range 100 {
		if err := r.Ping(t.Context()); err == nil {
			t.Fatal("got no error without a server")
		}
	}
	server.Restart()
	for range 10 {
		if err := r.Ping(t.Context()); err != nil {
			t.Errorf("after the start: %v", err)
		}
	}
}

// Ping warns of a server that evicts keys, once, and names it and the policy. An old
// server, and one that denies INFO, cannot be asked, which leaves no trace there.
func TestPingOfAServerThatEvicts(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		acl  string
		want bool
	}{
		{"evicts", []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"}, "", true},
		{"evicts, and INFO is denied", []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, "acl setuser default -info", false},
		{"noeviction", []string{"--maxmemory", "100mb", "--maxmemory-policy", "noeviction"}, "", false},
		{"no maxmemory", []string{"--maxmemory-policy", "allkeys-lru"}, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t, tt.args...)
			if tt.want && server.Client().Eval(t.Context(), "return redis.acl_check_cmd and 1 or 0", nil).Val() == int64(0) {
				t.Skip("this server cannot be asked; Redis 7.0 is the first that can")
			}
			if tt.acl != "" {
				do(t, server, tt.acl)
			}
			var log diagtest.Log

			r := openStore(t, server.URL(), config{Logger: log.Logger()})
			for range 2 {
				if err := r.Ping(t.Context()); err != nil {
					t.Fatal(err)
				}
			}

			lines := log.Lines()
			if !tt.want && len(lines) > 0 || tt.want && (len(lines) != 1 || lines[0].Code() != diag.RedisEvicts || lines[0].Attrs["server"] != server.Addr || lines[0].Attrs["maxmemory_policy"] != "volatile-lru") {
				t.Errorf("got %v; want a line: %v", lines, tt.want)
			}
			if entries := server.Client().ACLLog(t.Context(), 10).Val(); len(entries) > 0 {
				t.Errorf("got %+v in the ACL log; want nothing", entries)
			}
		})
	}
}

// A certificate whose only name is a Common Name does not verify, whatever the client connects to.
func TestPingOfACertificateWithoutSANs(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis.test"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)

	for _, name := range []string{"127.0.0.1", "redis.test"} {
		o, err := redisstore.ClientOptions("rediss://" + server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		o.TLSConfig.RootCAs, o.TLSConfig.ServerName = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, name
		client := redis.NewUniversalClient(o)
		t.Cleanup(func() { client.Close() })
		if err := storeOn(t, client, config{Logger: quiet}).Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "SANs, or issue one") {
			t.Errorf("%s: got %v; want a hint to issue a certificate with a SAN", name, err)
		}
	}
}
