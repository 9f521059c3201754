package httpclient_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
)

// stacks are the clients that obey denials, with a Denied.
func stacks(t *testing.T, base http.RoundTripper, denied func(*http.Response, httpclient.Denial) httpclient.Denial) map[string]http.RoundTripper {
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

					denied := func(resp *http.Response, told httpclient.Denial) httpclient.Denial {
						asked++
						body, err := io.ReadAll(resp.Body)
						if err != nil {
							t.Error(err)
						}
						resp.Body = io.NopCloser(bytes.NewReader(body))
						told.Denied = string(body) == denial
						return told
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

// Denied has the last word: it gives a 429 a wait, calls one final, and leaves others as they are. If it says no
// time, the fields do, as of a 429.
func TestDeniedJudges(t *testing.T) {
	for name, tt := range map[string]struct {
		first       []func() *http.Response
		status      int
		least, most time.Duration
		tries       int
	}{
		"a wait in the body":     {[]func() *http.Response{says(429, "Says: 3s")}, 200, 3 * time.Second, 3300 * time.Millisecond, 2},
		"a wait of its own":      {[]func() *http.Response{says(429, "Retry-After: 60", "Says: 3s")}, 200, 3 * time.Second, 3300 * time.Millisecond, 2},
		"another status":         {[]func() *http.Response{later, says(400, "Says: 3s")}, 200, 5 * time.Second, 5500 * time.Millisecond, 3},
		"final":                  {[]func() *http.Response{says(429, "Retry-After: 60", "Says: final")}, 429, 0, 0, 1},
		"final by another":       {[]func() *http.Response{says(402, "Says: final")}, 402, 0, 0, 1},
		"final by a field":       {[]func() *http.Response{says(429, "Retry-After: 60", "X-Should-Retry: false")}, 429, 0, 0, 1},
		"without a wait":         {[]func() *http.Response{says(400, "Says: 0s", "Retry-After: 3")}, 200, 3 * time.Second, 3300 * time.Millisecond, 2},
		"without any time":       {[]func() *http.Response{says(400, "Says: 0s")}, 200, 250 * time.Millisecond, 500 * time.Millisecond, 2},
		"a 429 that denies none": {[]func() *http.Response{says(429, "Retry-After: 60", "Says: no")}, 429, 0, 0, 1},
	} {
		denied := func(resp *http.Response, told httpclient.Denial) httpclient.Denial {
			switch says := resp.Header.Get("Says"); says {
			case "":
			case "final":
				told.Final = true
			case "no":
				told = httpclient.Denial{}
			default:
				told.Denied = true
				told.Wait, _ = time.ParseDuration(says)
			}
			return told
		}

		for _, client := range []string{"Transport", "Transport on Adaptive"} {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{answers: append(tt.first[:len(tt.first):len(tt.first)], ok)}
				c := stacks(t, p, denied)[client]
				begin := time.Now()
				resp, err := c.RoundTrip(request(t, "GET", url, nil))
				if err != nil || resp.StatusCode != tt.status || p.tries() != tt.tries {
					t.Fatalf("%s, %s: got %v, %v in %d tries; want %d in %d", name, client, resp, err, p.tries(), tt.status, tt.tries)
				}
				between(t, name+", "+client, time.Since(begin), tt.least, tt.most)

				if tt.tries == 1 { // it holds back no other
					if resp, err := c.RoundTrip(request(t, "GET", url, nil)); err != nil || resp.StatusCode != http.StatusOK {
						t.Fatalf("%s, %s: then got %v, %v; want 200", name, client, resp, err)
					}
					between(t, name+", "+client+", another", time.Since(begin), 0, 0)
				}
			})
		}
	}
}

// A request that our middleware can never allow is sent once, and slows down no other.
func TestDenialThatNoWaitHelps(t *testing.T) {
	for _, headers := range []middleware.Headers{middleware.HeadersDraft6, middleware.HeadersDraft11} {
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
