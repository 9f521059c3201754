package test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// stripeLike is a server with Stripe's limits for each account: 10 requests a second, and 3 at the same
// time. It denies both with a 429 before it does anything. It does nothing twice for one Idempotency-Key.
type stripeLike struct {
	retryAfter bool // a 429 has Retry-After
	rate       *gcra.Memory

	mu       sync.Mutex
	accounts map[string]*account // by client
}

type account struct {
	working int
	result  map[string]string // by Idempotency-Key
	made    map[string]int    // how often a charge was made, by body
}

func (s *stripeLike) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client := r.Header.Get("Client")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	rate, err := gcra.Take(r.Context(), s.rate, gcra.Charge{Subject: client, Policy: "rate", Limit: gcra.PerSecond(10), Cost: 1})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[client]
	if a == nil {
		a = &account{result: map[string]string{}, made: map[string]int{}}
		s.accounts[client] = a
	}

	if !rate.Allowed || a.working == 3 {
		if s.retryAfter {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, "Too many requests hit the API too quickly.", http.StatusTooManyRequests)
		return
	}

	a.working++
	s.mu.Unlock()
	time.Sleep(10 * time.Millisecond) // the work
	s.mu.Lock()
	a.working--

	key := r.Header.Get("Idempotency-Key")
	if key == "" || a.result[key] == "" {
		a.made[string(body)]++
		a.result[key] = fmt.Sprint("charge ", len(a.made))
	}
	_, _ = io.WriteString(w, a.result[key]) // fails only if the client is gone
}

// post returns requests that make a charge.
func post(url string, withKey bool) func(*testing.T, int) *http.Request {
	return func(t *testing.T, n int) *http.Request {
		body := fmt.Sprintf("amount=%d&currency=eur", 1000+n)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Client", t.Name())
		if withKey {
			r.Header.Set("Idempotency-Key", fmt.Sprint("order ", n))
		}
		return r
	}
}

// Five callers make eight charges each, or four in the short form. A denied POST is sent again if it has an Idempotency-Key or
// Config.Replay allows it, with its whole body, and each charge is made once.
func TestStripeLike(t *testing.T) {
	t.Parallel()
	tab := newTable(t, columns...)
	for _, retryAfter := range []bool{false, true} {
		for _, withKey := range []bool{false, true} {
			name := "Stripe-like"
			if retryAfter {
				name += ", Retry-After"
			}

			w := workload{callers: 5, calls: callsEach()}
			if withKey {
				name += ", Idempotency-Key"
			} else {
				name += ", Replay"
				w.config.Replay = func(r *http.Request) bool { return r.Method == http.MethodPost }
			}

			server := &stripeLike{retryAfter: retryAfter, rate: gcra.NewMemory(), accounts: map[string]*account{}}
			site := httptest.NewServer(server)
			t.Cleanup(site.Close)
			w.request = post(site.URL, withKey)

			w.run(t, tab, name, func(t *testing.T, _ string, x *exchanges) {
				made := server.accounts[t.Name()].made
				for body, n := range made {
					if n != 1 {
						t.Errorf("made the charge %q %d times; want once", body, n)
					}
				}

				all := w.callers * w.calls
				most := all + 10
				if retryAfter {
					most = 2 * all // after each second as many may be denied as are served
				}
				if len(made) != all || len(x.log) > most {
					t.Errorf("made %d charges with %d requests; want %d with at most %d", len(made), len(x.log), all, most)
				}
			})
		}
	}
}
