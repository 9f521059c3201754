package httpclient_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// limitReq is nginx's limit_req with rate=5r/s and burst=2, which denies with a bare 429.
type limitReq struct {
	nodelay bool

	mu     sync.Mutex
	free   time.Time // when all requests so far have left
	sent   int
	served int
}

func (s *limitReq) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	const interval, burst = 200 * time.Millisecond, 2
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.sent++
	if s.free.Before(now) {
		s.free = now
	}

	delay := s.free.Sub(now)
	if delay > burst*interval {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}

	s.free = s.free.Add(interval)
	s.served++
	if !s.nodelay {
		s.mu.Unlock()
		time.Sleep(delay)
		s.mu.Lock()
	}
}

// A server that denies with a bare 429 slows down all callers of the host together: it gets few more
// requests than it answers. If no pace has to be guessed, 40 requests take it 7.4 s.
func TestBareDenials(t *testing.T) {
	for name, stack := range map[string]func(http.RoundTripper) http.RoundTripper{
		"Transport": func(base http.RoundTripper) http.RoundTripper {
			return transport(t, httpclient.Config{Base: base, MaxTries: 20})
		},
		"Transport on Adaptive": func(base http.RoundTripper) http.RoundTripper {
			return transport(t, httpclient.Config{Base: &httpclient.Adaptive{Base: base}, MaxTries: 20})
		},
		"Adaptive on Transport": func(base http.RoundTripper) http.RoundTripper {
			return &httpclient.Adaptive{Base: transport(t, httpclient.Config{Base: base, MaxTries: 20})}
		},
	} {
		for _, nodelay := range []bool{false, true} {
			for _, callers := range []int{2, 5, 10} {
				t.Run(fmt.Sprintf("%s, nodelay %v, %d callers", name, nodelay, callers), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						server := &limitReq{nodelay: nodelay}
						c := stack(direct{server, time.Millisecond})
						begin := time.Now()

						var wg sync.WaitGroup
						for range callers {
							wg.Go(func() {
								for range 40 / callers {
									resp, err := c.RoundTrip(httptest.NewRequest(http.MethodGet, "http://api.example/", http.NoBody))
									if err != nil || resp.StatusCode != http.StatusOK {
										t.Errorf("got %v, %v; want 200", resp, err)
									}
								}
							})
						}

						wg.Wait()
						took := time.Since(begin)
						t.Logf("served %d of %d in %v", server.served, server.sent, took)

						// Of the first requests three are served, and all that are denied are sent again. The server is asked for at
						// most 0.6 s until it allows more. A guess of 2.1 in that time is 3.5 a second and doubles in 30 s, so the
						// other 37 take 9.5 s: 30 s * log2(1 + 37 ln 2 / (30 * 3.5)).
						if most := 60; server.served != 40 || server.sent > most || took > 11*time.Second {
							t.Errorf("served %d of %d in %v; want 40 of at most %d in at most 11 s", server.served, server.sent, took, most)
						}
					})
				})
			}
		}
	}
}

// MaxWait bounds the waits of an Adaptive, alone and under a Transport. A request that cannot wait for
// so long is not sent.
func TestAdaptiveMaxWait(t *testing.T) {
	const retryAfter = 10 * time.Hour
	for _, tt := range []struct {
		name  string
		stack func(http.RoundTripper) http.RoundTripper
		most  time.Duration
	}{
		{"a minute", func(base http.RoundTripper) http.RoundTripper { return &httpclient.Adaptive{Base: base} }, time.Minute},
		{"MaxWait", func(base http.RoundTripper) http.RoundTripper {
			return &httpclient.Adaptive{Base: base, MaxWait: 5 * time.Second}
		}, 5 * time.Second},
		{"MaxWait of a Transport", func(base http.RoundTripper) http.RoundTripper {
			return transport(t, httpclient.Config{Base: &httpclient.Adaptive{Base: base}, MaxWait: 7 * time.Second})
		}, 7 * time.Second},
		{"the shorter one", func(base http.RoundTripper) http.RoundTripper {
			return transport(t, httpclient.Config{Base: &httpclient.Adaptive{Base: base, MaxWait: 3 * time.Second}, MaxWait: 7 * time.Second})
		}, 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{answers: []func() *http.Response{says(429, "Retry-After: 36000"), ok}}
				c := tt.stack(p)
				if resp, err := c.RoundTrip(request(t, "GET", url, nil, "Authorization: alice")); err != nil || resp.StatusCode != 429 {
					t.Fatalf("got %v, %v; want the 429", resp, err)
				}

				begin := time.Now()
				body := watch("order")
				r := request(t, "PUT", url, nil, "Authorization: bob") // no pause of the Transport
				r.Body = body
				_, err := c.RoundTrip(r)
				var wait *turns.WaitError
				if !errors.As(err, &wait) || wait.Needed != retryAfter || wait.Patience != tt.most || time.Since(begin) != 0 {
					t.Errorf("got %v after %v; want a WaitError at once, with %v needed and %v allowed", err, time.Since(begin), retryAfter, tt.most)
				}

				if p.tries() != 1 || body.closes() != 1 {
					t.Errorf("sent %d times, body closed %d times; want once", p.tries(), body.closes())
				}
				time.Sleep(retryAfter - time.Second)
				if resp, err := c.RoundTrip(request(t, "GET", url, nil, "Authorization: bob")); err != nil || resp.StatusCode != 200 || time.Since(begin) < retryAfter {
					t.Errorf("got %v, %v after %v; want 200 at the end of Retry-After", resp, err, time.Since(begin))
				}
			})
		})
	}
}

// A request that a queue would hold back for longer than MaxWait fails at once and leaves no gap.
func TestAdaptiveQueueWithinMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxWait = 20 * time.Second
		limited := says(200, "RateLimit-Limit: 8", "RateLimit-Remaining: 1", "RateLimit-Policy: 60;w=60")
		a := &httpclient.Adaptive{Base: &partner{answers: []func() *http.Response{limited}}, MaxWait: maxWait}
		if _, err := a.RoundTrip(request(t, "GET", url, nil)); err != nil {
			t.Fatal(err)
		}

		begin := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				_, err := a.RoundTrip(request(t, "GET", url, nil))
				if err != nil && !errors.Is(err, turns.ErrWouldWait) {
					t.Error(err)
				}
			})
		}

		wg.Wait()
		if took := time.Since(begin); took > maxWait {
			t.Errorf("all were done after %v; want at most %v", took, maxWait)
		}
	})
}
