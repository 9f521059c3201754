package redisstore_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
)

// A client with TLS and RESP3 may take longer than 50 ms. The store logs that once, with
// the option to change.
func TestRESP3OverTLSIsLogged(t *testing.T) {
	t.Parallel()
	const nowhere = "127.0.0.1:1" // no server: the line depends on the options alone
	tlsConfig := &tls.Config{}
	for _, tt := range []struct {
		name    string
		client  redis.UniversalClient
		timeout time.Duration
		warns   bool
	}{
		{"client", redis.NewClient(&redis.Options{Addr: nowhere, TLSConfig: tlsConfig}), 0, true},
		{"client, RESP3", redis.NewClient(&redis.Options{Addr: nowhere, TLSConfig: tlsConfig, Protocol: 3}), 0, true},
		{"client, short timeout", redis.NewClient(&redis.Options{Addr: nowhere, TLSConfig: tlsConfig}), 20 * time.Millisecond, true},
		{"failover", redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: []string{nowhere}, TLSConfig: tlsConfig}), 0, true},
		{"failover cluster", redis.NewFailoverClusterClient(&redis.FailoverOptions{SentinelAddrs: []string{nowhere}, TLSConfig: tlsConfig, RouteRandomly: true}), 0, true},
		{"cluster", redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nowhere}, TLSConfig: tlsConfig}), 0, true},
		{"ring", redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": nowhere}, TLSConfig: tlsConfig}), 0, true},

		{"no TLS", redis.NewClient(&redis.Options{Addr: nowhere}), 0, false},
		{"client, RESP2", redis.NewClient(&redis.Options{Addr: nowhere, TLSConfig: tlsConfig, Protocol: 2}), 0, false},
		{"failover, RESP2", redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: []string{nowhere}, TLSConfig: tlsConfig, Protocol: 2}), 0, false},
		{"cluster, RESP2", redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nowhere}, TLSConfig: tlsConfig, Protocol: 2}), 0, false},
		{"ring, RESP2", redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": nowhere}, TLSConfig: tlsConfig, Protocol: 2}), 0, false},
		{"long timeout", redis.NewClient(&redis.Options{Addr: nowhere, TLSConfig: tlsConfig}), 51 * time.Millisecond, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { tt.client.Close() })
			log := new(diagtest.Text)

			r := storeOn(t, tt.client, config{Timeout: tt.timeout, Logger: log.Logger()})
			for range 2 {
				if _, err := gcra.Take(t.Context(), r, hourly("s", 10)); err == nil {
					t.Fatal("got no error without a server")
				}
			}

			want := 0
			if tt.warns {
				want = 1
			}
			got := log.Lines("code=redis-resp3-tls")
			if len(got) != want {
				t.Errorf("got lines %q; want %d", got, want)
			}

			if tt.warns && !strings.Contains(strings.Join(got, "\n"), "Protocol: 2") {
				t.Errorf("got lines %q; want the option to change", got)
			}
		})
	}
}
