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
	"github.com/seed-e377111c/ratelimit/internal/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

var _ = fault(86, "no_client_opens_the_door_for_others", func(t *testing.T, o *outcome) {
	o.injected = "damaged keys, 900 KB headers, forged tokens, resets"
	const burst = 20
	server := redistest.Start(t)
	store := rigAt(t, server.URL()+"?read_timeout=20s")
	store.Timeout, store.Prefix = patience, "rl:"
	subject := keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"})
	for _, outage := range []middleware.FailureMode{middleware.FailOpen, middleware.FailClosed} {
		honest := fmt.Sprint("alice", outage)
		s := openSite(t, o, setup{Config: middleware.Config{Store: store.Store}, policies: []middleware.Policy{
			{Name: "client", Key: byClient, Limit: gcra.PerDay(burst), OnFailure: outage},
			{Name: "token", Key: subject, Limit: gcra.PerDay(1_000_000).WithBurst(100_000), OnFailure: outage}}})
		long := strings.Repeat("k", 900<<10)
		attacks := []func(i int){
			func(i int) {
				key := fmt.Sprint("rl:{eve", i%5, "}:client")
				do(t, server, "del", key)
				server.Client().LPush(t.Context(), key, "x") // may find it healed already
				s.do(t, "GET /ok", fmt.Sprint("X-Client: eve", i%5))
			},
			func(i int) { s.do(t, "GET /ok", "X-Client: "+long, fmt.Sprint("X-Nonce: ", i)) },
			func(i int) {
				s.do(t, "GET /ok", "X-Client: eve", "Authorization: Bearer "+strings.Repeat(fmt.Sprint(i, "."), 9000))
			},
			func(int) {
				s.raw(t, "GET /%2e%2e/ok HTTP/1.1\r\nHost: h\r\nX-Client: \xff\xfe{}\r\nConnection: close\r\n\r\n")
			},
			func(int) { s.hangUp(t, "GET /ok HTTP/1.1\r\nHost: h\r\nX-Client: eve\r\n\r\n", time.Millisecond) },
		}
		var running sync.WaitGroup
		for _, attack := range attacks {
			running.Go(func() {
				for i := range sized(20, 500) {
					attack(i)
				}
			})
		}
		var passed atomic.Int64
		crowd(4, func(int) {
			for range burst {
				if s.do(t, "GET /ok", "X-Client: "+honest).StatusCode == http.StatusOK {
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
	if lines := store.log.lines(isAway); len(lines) != 0 {
		t.Errorf("the attacks counted as an outage: %q", lines)
	}
})

var _ = fault(87, "a_refund_is_once_and_no_more_than_was_charged", func(t *testing.T, o *outcome) {
	o.injected = "double, concurrent, late and uncharged refunds"
	const burst = 10
	server := redistest.Start(t)
	for name, store := range map[string]gcra.Store{"Memory": gcra.NewMemory(), "Redis": patientStore(t, server)} {
		var kept sync.Map // what handlers have left behind
		s := openSite(t, o, setup{Config: middleware.Config{Store: store}, policies: []middleware.Policy{
			{Name: "p", Key: everybody, Limit: gcra.PerDay(burst), Cost: func(r *http.Request) int {
				if r.Method == http.MethodHead {
					return 0
				}
				return 2
			}}},
			handler: func(_ http.ResponseWriter, r *http.Request) {
				d := middleware.FromContext(r.Context())
				kept.Store(d, true)
				if r.Header.Get("X-Refund") == "" {
					return
				}
				var refunds sync.WaitGroup
				for range 8 {
					refunds.Go(func() {
						copied := *d
						if err := copied.Refund(r.Context()); err != nil {
							t.Errorf("%s: Refund: %v", name, err)
						}
					})
				}
				refunds.Wait()
			}})
		left := func() string { return s.do(t, "HEAD /ok").Header.Get("RateLimit-Remaining") }
		s.do(t, "GET /ok") // 8 are left
		for range 5 {
			expect(t, name+": a request that refunds", s.do(t, "GET /ok", "X-Refund: 1").StatusCode, 200)
			expect(t, name+": left after eight refunds of one charge", left(), "8")
		}
		// A second refund after the request has gone, and one of a request that
		// cost nothing.
		kept.Range(func(d, _ any) bool {
			if err := d.(*middleware.Decision).Refund(t.Context()); err != nil {
				t.Errorf("%s: a late refund: %v", name, err)
			}
			return true
		})
		expect(t, name+": left after late refunds of all", left(), "10")
		// A refusal has charged nothing, so nothing comes back.
		expect(t, name+": the burst", s.statuses(t, "GET /ok", 6), []int{200, 200, 200, 200, 200, 429})
		refused := s.lastDecision()
		if err := refused.Refund(t.Context()); err != nil {
			t.Errorf("%s: refund of a refusal: %v", name, err)
		}
		expect(t, name+": left after refund of a refusal", left(), "0")
		// To the store itself a refund is bounded by the full bucket.
		c := gcra.Charge{Subject: "everybody", Policy: "p", Limit: gcra.PerDay(burst), Cost: 1 << 62}
		for range 3 {
			if err := store.Refund(t.Context(), []gcra.Charge{c}); err != nil {
				t.Errorf("%s: a reset: %v", name, err)
			}
		}
		expect(t, name+": left after resets", left(), "10")
		codes := s.statuses(t, "GET /ok", 8)
		expect(t, name+": the burst after resets", codes, []int{200, 200, 200, 200, 200, 429, 429, 429})
	}
})
