package httpclient_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
)

// fixedWindow is a server that allows so many requests in each period, as express-rate-limit and
// GitHub do. header writes the fields of a response.
type fixedWindow struct {
	limit  int
	period time.Duration
	status int // of a denial
	header func(h http.Header, remaining int, reset time.Time)

	mu           sync.Mutex
	end          time.Time
	used, denied int
}

func (s *fixedWindow) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); !now.Before(s.end) {
		s.end, s.used = now.Add(s.period), 0
	}
	s.used++
	s.header(w.Header(), max(s.limit-s.used, 0), s.end)
	if s.used > s.limit {
		s.denied++
		w.WriteHeader(s.status)
	}
}

// With each form of fields that real servers send, and without Retry-After, an Adaptive below a
// Transport gets hardly a denial.
func TestAdaptiveFixedWindows(t *testing.T) {
	seconds := func(reset time.Time) int { return int((time.Until(reset) + time.Second - 1) / time.Second) }
	const limit, period = 10, 4 * time.Second
	for name, header := range map[string]func(http.Header, int, time.Time){
		"draft 6": func(h http.Header, remaining int, reset time.Time) {
			h.Set("RateLimit-Policy", "10;w=4")
			h.Set("RateLimit-Limit", "10")
			h.Set("RateLimit-Remaining", fmt.Sprint(remaining))
			h.Set("RateLimit-Reset", fmt.Sprint(seconds(reset)))
		},

		"draft 7": func(h http.Header, remaining int, reset time.Time) {
			h.Set("RateLimit-Policy", "10;w=4")
			h.Set("RateLimit", fmt.Sprintf("limit=10, remaining=%d, reset=%d", remaining, seconds(reset)))
		},
		"draft 8": func(h http.Header, remaining int, reset time.Time) {
			h.Set("RateLimit-Policy", `"10-in-4sec"; q=10; w=4; pk=:MTI3:`)
			h.Set("RateLimit", fmt.Sprintf(`"10-in-4sec"; r=%d; t=%d`, remaining, seconds(reset)))
		},

		"X-RateLimit, Unix time": func(h http.Header, remaining int, reset time.Time) {
			h.Set("X-RateLimit-Limit", "10")
			h.Set("X-RateLimit-Remaining", fmt.Sprint(remaining))
			h.Set("X-RateLimit-Reset", fmt.Sprint(reset.Add(time.Second-1).Unix()))
		},
	} {
		for _, status := range []int{http.StatusTooManyRequests, http.StatusForbidden} {
			t.Run(fmt.Sprint(name, " ", status), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := &fixedWindow{limit: limit, period: period, status: status, header: header}
					c := transport(t, httpclient.Config{Base: &httpclient.Adaptive{Base: direct{server, 5 * time.Millisecond}}})

					const callers, calls = 5, 8
					begin := time.Now()
					var wg sync.WaitGroup
					for range callers {
						wg.Go(func() {
							for range calls {
								resp, err := c.RoundTrip(httptest.NewRequest(http.MethodGet, "http://api.example/", http.NoBody))
								if err != nil || resp.StatusCode != http.StatusOK {
									t.Errorf("got %v, %v; want 200", resp, err)
								}
							}
						})
					}

					wg.Wait()
					took := time.Since(begin)
					t.Logf("%d denied, %v", server.denied, took)

					// The best possible time is three periods.
					if most := 8 * period; took > most || server.denied > 2 {
						t.Errorf("took %v with %d denied; want at most %v and 2", took, server.denied, most)
					}
				})
			})
		}
	}
}

// A limit of requests at the same time is no rate: Adaptive does not pace by it.
func TestAdaptiveConcurrentRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, callers, calls = 4, 4, 100
		var at atomic.Int64
		server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("RateLimit-Policy", `"conc";q=4;qu="concurrent-requests"`)
			w.Header().Set("RateLimit", fmt.Sprintf(`"conc";r=%d`, most-at.Add(1)))
			time.Sleep(100 * time.Millisecond)
			at.Add(-1)
		})

		a := &httpclient.Adaptive{Base: direct{server, 5 * time.Millisecond}}
		begin := time.Now()
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range calls {
					resp, err := a.RoundTrip(httptest.NewRequest(http.MethodGet, "http://api.example/", http.NoBody))
					if err != nil || resp.StatusCode != http.StatusOK {
						t.Errorf("got %v, %v; want 200", resp, err)
					}
				}
			})
		}

		wg.Wait()
		if took, want := time.Since(begin), calls*105*time.Millisecond; took != want {
			t.Errorf("took %v; want %v", took, want)
		}
	})
}

// GitHub's core and search have limits of their own under one Key: each is used, whatever the other does.
func TestAdaptiveKeepsLimitsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := func(resource string, units int, period time.Duration) *fixedWindow {
			return &fixedWindow{limit: units, period: period, status: http.StatusForbidden, header: func(h http.Header, remaining int, reset time.Time) {
				h.Set("X-RateLimit-Resource", resource)
				h.Set("X-RateLimit-Limit", fmt.Sprint(units))
				h.Set("X-RateLimit-Remaining", fmt.Sprint(remaining))
				h.Set("X-RateLimit-Reset", fmt.Sprint(reset.Unix()))
			}}
		}
		core, search := limit("core", 5000, time.Hour), limit("search", 30, time.Minute)
		mux := http.NewServeMux()
		mux.Handle("/repos/", core)
		mux.Handle("/search/", search)
		client := &httpclient.Adaptive{Base: direct{mux, 100 * time.Millisecond}, MaxWait: 2 * time.Hour}

		served := map[string]int{}
		end := time.Now().Add(4 * time.Hour)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, path := range []string{"/repos/o/r", "/search/issues"} {
			wg.Go(func() {
				for time.Now().Before(end) {
					resp, err := client.RoundTrip(httptest.NewRequest(http.MethodGet, "http://api.github.example"+path, http.NoBody))
					if err != nil {
						t.Error(err)
						return
					}
					if resp.StatusCode == http.StatusOK {
						mu.Lock()
						served[path]++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		if served["/repos/o/r"] < 19_000 || served["/search/issues"] < 6840 {
			t.Errorf("served %v; want 95 %% of 20000 and of 7200", served)
		}
	})
}
