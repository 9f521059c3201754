package httpclient_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
)

// stacks are the clients that obey denials, with a Denied.
func stacks(t *testing.T, base http.RoundTripper, denied func(*http.Response) (time.Duration, bool)) map[string]http.RoundTripper {
	return map[string]http.RoundTripper{
		"Transport":             transport(t, httpclient.Config{Base: base, Denied: denied, MaxTries: 20}),
		"Transport on Adaptive": transport(t, httpclient.Config{Base: &httpclient.Adaptive{Base: base}, Denied: denied, MaxTries: 20}),
		"Adaptive":              &httpclient.Adaptive{Base: base, Denied: denied},
	}
}

// A partner that denies with a 400, as AWS does, or with a 200 and an error in its body, as Slack can, is paced
// and asked again as one that denies with a 429. Denied sees each response once, and the caller gets its body.
func TestDenied(t *testing.T) {
	const denial = `{"ok":false,"error":"ratelimited"}`
	for name, status := range map[string]int{"AWS": http.StatusBadRequest, "Slack": http.StatusOK} {
		for _, client := range []string{"Transport", "Transport on Adaptive", "Adaptive"} {
			t.Run(name+", "+client, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sent, served, asked := 0, 0, 0
					free := time.Now()
					base := roundTrip(func(*http.Request) (*http.Response, error) {
						time.Sleep(10 * time.Millisecond)
						sent++
						if now := time.Now(); now.Before(free) {
							return answer(status, io.NopCloser(bytes.NewReader([]byte(denial)))), nil
						}
						served++
						free = time.Now().Add(time.Second)
						return answer(http.StatusOK, io.NopCloser(bytes.NewReader([]byte(`{"ok":true}`)))), nil
					})

					denied := func(resp *http.Response) (time.Duration, bool) {
						asked++
						body, err := io.ReadAll(resp.Body)
						if err != nil {
							t.Error(err)
						}
						resp.Body = io.NopCloser(bytes.NewReader(body))
						return 0, string(body) == denial
					}

					c := stacks(t, base, denied)[client]
					const calls = 20
					for call := 0; call < calls; {
						resp, err := c.RoundTrip(request(t, "GET", url, nil))
						if err != nil {
							t.Fatal(err)
						}

						got := text(t, resp)
						if got == denial && client != "Adaptive" {
							t.Fatalf("call %d: got the denial; want it sent again", call)
						}
						if got != denial {
							call++
						}
					}

					if served != calls || sent > 2*calls || asked != sent {
						t.Errorf("served %d of %d, asked %d times; want %d of at most %d, asked for each", served, sent, asked, calls, 2*calls)
					}
				})
			})
		}
	}
}

// Denied adds to the defaults: what it says of a 429 does not count.
func TestDeniedAddsToDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answers: []func() *http.Response{later, says(http.StatusBadRequest), ok}}
		begin := time.Now()
		c := transport(t, httpclient.Config{Base: p, Denied: func(resp *http.Response) (time.Duration, bool) {
			return 3 * time.Second, resp.StatusCode == http.StatusBadRequest
		}})
		resp, err := c.RoundTrip(request(t, "GET", url, nil))
		if err != nil || resp.StatusCode != http.StatusOK || p.tries() != 3 {
			t.Fatalf("got %v, %v in %d tries; want 200 in 3", resp, err, p.tries())
		}
		between(t, "2 s and 3 s, and up to a tenth", time.Since(begin), 5*time.Second, 5500*time.Millisecond)
	})
}

// A Denied that says no time leaves that to the fields, as of a 429.
func TestDeniedWithoutATime(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		fields      []string
		least, most time.Duration
	}{
		{[]string{"Retry-After: 3"}, 3 * s, 3300 * time.Millisecond},
		{[]string{"RateLimit-Remaining: 0", "RateLimit-Reset: 3"}, 3 * s, 3300 * time.Millisecond},
		{[]string{"RateLimit-Remaining: 9", "RateLimit-Reset: 3"}, s / 4, s / 2},
		{[]string{"RateLimit-Policy: 10;w=60"}, s / 4, s / 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &partner{answers: []func() *http.Response{says(http.StatusBadRequest, tt.fields...), ok}}
			begin := time.Now()
			c := transport(t, httpclient.Config{Base: p, Denied: func(resp *http.Response) (time.Duration, bool) {
				return 0, resp.StatusCode == http.StatusBadRequest
			}})
			if resp, err := c.RoundTrip(request(t, "GET", url, nil)); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%q: got %v, %v; want 200", tt.fields, resp, err)
			}
			between(t, strings.Join(tt.fields, ", "), time.Since(begin), tt.least, tt.most)
		})
	}
}

// A request that our middleware can never allow is sent once, and slows down no other.
func TestDenialThatNoWaitHelps(t *testing.T) {
	for _, headers := range []ratelimit.Headers{ratelimit.HeadersDraft6, ratelimit.HeadersDraft11} {
		policy := ratelimit.Policy{Name: "p", Key: keyfunc.Const("all"), Limit: gcra.PerSecond(1000), Cost: func(r *http.Request) int64 {
			if r.URL.Path == "/large" {
				return 2000
			}
			return 1
		}}

		server := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Headers: headers, Logger: slog.New(slog.DiscardHandler)}, policy)(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		sent := 0
		base := roundTrip(func(r *http.Request) (*http.Response, error) {
			sent++
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			return w.Result(), nil
		})

		for client, c := range stacks(t, base, nil) {
			sent = 0
			for _, path := range []string{"/", "/large", "/"} {
				want := http.StatusOK
				if path == "/large" {
					want = http.StatusTooManyRequests
				}
				resp, err := c.RoundTrip(httptest.NewRequest(http.MethodGet, "http://api.example"+path, http.NoBody))
				if err != nil || resp.StatusCode != want {
					t.Fatalf("%v, %s, %s: got %v, %v; want %d", headers, client, path, resp, err, want)
				}
			}

			if sent != 3 {
				t.Errorf("%v, %s: sent %d requests for 3 calls; want each once", headers, client, sent)
			}
		}
	}
}
