package faults

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// A server that accepts connections, and whose TLS handshake never ends.
func TestFault106TLSHandshakeHangs(t *testing.T) {
	o := apart(t, "a TLS handshake without an answer")
	proxy := redistest.NewProxy(t, redistest.StartTLS(t, redistest.NewCertificates(t)).Addr)
	a := openAsker(t, o, "rediss://"+proxy.Addr+"/0?skip_verify=true", 0, softLimit())
	a.under(t, func() { proxy.Blackhole(); proxy.Reset() }, proxy.Pass)
	if len(a.log.Lines("redis-unreachable")) == 0 {
		t.Errorf("got log lines %q; want one that says redis-unreachable", a.log.Lines(isAway))
	}
}

// Open connections go on when the certificate expires. New ones do not verify, and the
// log says what to do.
func TestFault107CertificateExpires(t *testing.T) {
	o := apart(t, "a certificate that expires, and is renewed")
	certs := redistest.NewCertificates(t)
	server := redistest.StartTLS(t, certs)
	unverified := server.Options()
	unverified.TLSConfig = &tls.Config{InsecureSkipVerify: true} // it changes the certificate

	control := closing(t, redis.NewClient(unverified))
	renew := func(expires time.Time) {
		t.Helper()
		certs.Renew(t, expires)
		if err := control.ConfigSet(t.Context(), "tls-cert-file", certs.CertFile).Err(); err != nil {
			t.Fatal(err)
		}
	}

	expires := time.Now().Add(5 * time.Second).Truncate(time.Second) // time for a busy machine to connect
	renew(expires)

	options, err := redisstore.ClientOptions(strings.Replace(server.URL(), "redis://", "rediss://", 1))
	if err != nil {
		t.Fatal(err)
	}

	options.TLSConfig.RootCAs = certs.Roots // of a private authority, as the comment of Options says
	options.DialTimeout = ample
	client := closing(t, redis.NewUniversalClient(options))
	// A call that ends with its Timeout may end its connection, and there is no other once the certificate has expired.
	patient := storeOn(t, client, config{Timeout: ample})
	works(t, patient)
	redistest.Eventually(t, ample, "the certificate to expire", func() bool { return time.Now().After(expires) })
	if _, err := gcra.Take(t.Context(), patient, plenty("somebody")); err != nil {
		t.Errorf("an open connection ended with the certificate: %v; want it to go on", err)
	}

	a := newAsker(o, func(cfg config) *redisstore.Store {
		cfg.Timeout = budget
		return storeOn(t, client, cfg)
	}, 0, softLimit())

	a.under(t, func() {
		if err := control.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err(); err != nil {
			t.Error(err)
		}
		redistest.Eventually(t, ample, "the certificate to be in the log", func() bool { return len(a.log.Lines("redis-certificate")) > 0 })
	}, func() { renew(time.Now().Add(time.Hour)) })

	if lines := a.log.Lines("redis-certificate"); !strings.Contains(lines[0], "renew the certificate") {
		t.Errorf("got log lines %q about the certificate; want what to do", lines)
	}
	if len(a.log.Lines(isBack)) == 0 {
		t.Error("the end of the outage is not in the log")
	}
}
