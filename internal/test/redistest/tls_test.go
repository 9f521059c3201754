package redistest

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A server with TLS is for clients that trust its authority, and asks for a
// certificate where its arguments say so.
func TestStartTLS(t *testing.T) {
	certs := NewCertificates(t)
	server := StartTLS(t, certs, "--tls-auth-clients", "yes", "--requirepass", "secret")
	if err := server.Client().Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING: got %v; want no error", err)
	}
	if !strings.HasPrefix(server.URL(), "rediss://:secret@") {
		t.Errorf("URL is %q; want rediss://:secret@...", server.URL())
	}
	for name, config := range map[string]*tls.Config{
		"no TLS":                 nil,
		"another authority":      NewCertificates(t).client(),
		"no certificate to show": {RootCAs: certs.Roots},
	} {
		o := server.Options()
		o.MaxRetries, o.DialerRetries, o.TLSConfig = -1, 1, config
		c := redis.NewClient(o)
		if err := c.Ping(t.Context()).Err(); err == nil {
			t.Errorf("PING with %s: got no error", name)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestStartTLSCluster(t *testing.T) {
	cluster := StartTLSCluster(t, NewCertificates(t))
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		if err := cluster.Client().Set(t.Context(), key, 1, 0).Err(); err != nil {
			t.Errorf("SET %s: got %v; want no error", key, err)
		}
	}
}
