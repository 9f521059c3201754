package redisstore_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// A server that requires a password closes the connection after its error. That is one
// problem and one line.
func TestMissingPasswordIsOneLine(t *testing.T) {
	t.Parallel()
	certs := redistest.NewCertificates(t)
	for name, server := range map[string]*redistest.Server{
		"redis":  redistest.Start(t, "--requirepass", "hunter2"),
		"rediss": redistest.StartTLS(t, certs, "--requirepass", "hunter2"),
	} {
		t.Run(name, func(t *testing.T) {
			o, err := redisstore.ClientOptions(name + "://" + server.Addr)
			if err != nil {
				t.Fatal(err)
			}
			o.DialTimeout, o.PoolTimeout = patience, patience // a handshake on a busy machine
			if o.TLSConfig != nil {
				o.TLSConfig.RootCAs = certs.Roots
			}

			const stores = 20 // a server closes connections now earlier, now later
			log := new(diagtest.Text)
			for range stores {
				client := redis.NewUniversalClient(o)
				t.Cleanup(func() { client.Close() })
				store, err := redisstore.New(client, redisstore.Config{Timeout: patience, Logger: log.Logger()})
				if err != nil {
					t.Fatal(err)
				}
				limited := ratelimit.New(ratelimit.Config{Store: store, Logger: log.Logger()},
					ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(10)})(http.NotFoundHandler())
				for range 5 {
					limited.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
				}
			}

			redistest.Eventually(t, patience, "a line of each store", func() bool {
				return len(log.Lines("code=redis-auth")) >= stores
			})
			if lines := log.Lines(""); len(lines) != stores || len(log.Lines("level=ERROR")) != stores {
				t.Errorf("got\n%s\nwant a line of each store, with redis-auth", strings.Join(lines, "\n"))
			}
		})
	}
}
