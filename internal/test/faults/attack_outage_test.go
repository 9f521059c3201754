package faults

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestFault86NoClientCausesAnOutage(t *testing.T) {
	o := apart(t, "damaged keys, 900 KB headers, forged tokens, resets")
	const burst = 20
	server := redistest.Start(t)
	store := rigAt(t, server.URL(), config{Prefix: "rl:", Timeout: ample})
	subject := keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return []byte("a secret that is long enough for HS256"), nil }, []string{"HS256"})
	for _, outage := range []middleware.FailureMode{middleware.FailOpen, middleware.FailClosed} {
		honest := fmt.Sprint("alice", outage)
		s := openSite(t, o, sitetest.Config{Config: middleware.Config{Store: store.Store}, Policies: []middleware.Policy{
			{Name: "client", Key: byClient, Limit: gcra.PerDay(burst), OnFailure: outage},
			{Name: "token", Key: subject, Limit: gcra.PerDay(1_000_000).WithBurst(100_000), OnFailure: outage}}})

		long := strings.Repeat("k", 900<<10)
		attacks := []func(i int){
			func(i int) {
				key := fmt.Sprint("rl:{eve", i%5, "}:client")
				do(t, server, "del", key)
				server.Client().LPush(t.Context(), key, "x") // may find it healed already
				s.Do(t, "GET /ok", fmt.Sprint("X-Client: eve", i%5))
			},
			func(i int) { s.Do(t, "GET /ok", "X-Client: "+long, fmt.Sprint("X-Nonce: ", i)) },
			func(i int) {
				s.Do(t, "GET /ok", "X-Client: eve", "Authorization: Bearer "+strings.Repeat(fmt.Sprint(i, "."), 9000))
			},
			func(int) {
				s.Raw(t, "GET /%2e%2e/ok HTTP/1.1\r\nHost: h\r\nX-Client: \xff\xfe{}\r\nConnection: close\r\n\r\n")
			},
			func(int) { s.hangUp(t, "GET /ok HTTP/1.1\r\nHost: h\r\nX-Client: eve\r\n\r\n", time.Millisecond) },
		}

		var running sync.WaitGroup
		for _, attack := range attacks {
			running.Go(func() {
				for i := range amount(20, 500) {
					attack(i)
				}
			})
		}

		var passed atomic.Int64
		redistest.Together(4, func(int) {
			for range burst {
				if s.Do(t, "GET /ok", "X-Client: "+honest).StatusCode == http.StatusOK {
					passed.Add(1)
				}
			}
		})

		running.Wait()
		o.atMost(t, passed.Load(), burst, honest)
		expect(t, honest+" passed", passed.Load(), burst)
		s.settled()
		expect(t, "decisions with an error", s.failed.Load(), 0)
	}

	if lines := store.log.Lines(isAway); len(lines) != 0 {
		t.Errorf("the attacks counted as an outage: %q", lines)
	}
}
