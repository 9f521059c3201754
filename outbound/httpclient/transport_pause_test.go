package httpclient_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// A Retry-After holds back other requests: after a 503 all requests to the host, after a 429 those
// with the same credential.
func TestPause(t *testing.T) {
	type other struct {
		url, token string
		held       bool
	}

	for _, tt := range []struct {
		name   string
		answer func() *http.Response
		method string // of the denied request
		token  string
		others []other
	}{
		{"429", later, "GET", "alice", []other{
			{url, "alice", true}, {"https://API.example.com:443/x", "alice", true},
			{url, "bob", false}, {url, "", false}, {"https://other.example.com", "alice", false}, {"https://api.example.com:8443", "alice", false},
		}},
		{"429 to an anonymous request", later, "GET", "", []other{{url, "", true}, {url, "bob", false}}},
		{"503", says(503, "Retry-After: 2"), "GET", "alice", []other{
			{url, "alice", true}, {url, "bob", true}, {url, "", true}, {"https://other.example.com", "alice", false},
		}},
		{"not safe to repeat", later, "POST", "alice", []other{{url, "alice", true}, {url, "bob", false}}},
		{"403 with Retry-After", says(403, "Retry-After: 2"), "GET", "alice", []other{{url, "alice", true}, {url, "bob", false}}},
		{"nothing remaining", says(429, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 2"), "GET", "alice", []other{{url, "alice", true}, {url, "bob", false}}},
		{"no Retry-After, another host", says(429), "GET", "alice", []other{{"https://other.example.com", "alice", false}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{answers: []func() *http.Response{tt.answer, ok}}
				tr := transport(t, httpclient.Config{Base: p})
				send := func(method, url, token string) {
					r := request(t, method, url, nil)
					if token != "" {
						r.Header.Set("Authorization", token)
					}
					if _, err := tr.RoundTrip(r); err != nil {
						t.Error(err)
					}
				}

				var wg sync.WaitGroup
				wg.Go(func() { send(tt.method, url, tt.token) })
				synctest.Wait()
				time.Sleep(100 * time.Millisecond) // the pause has begun

				for _, o := range tt.others {
					wg.Go(func() {
						begin := time.Now()
						send("GET", o.url, o.token)
						if held := time.Since(begin); (held > 0) != o.held || o.held && (held < 1900*time.Millisecond || held > 2100*time.Millisecond) {
							t.Errorf("%q to %s was held back for %v; want held back %v, for the rest of 2s and at most a tenth more", o.token, o.url, held, o.held)
						}
					})
				}
				wg.Wait()
			})
		})
	}
}

// A request that cannot wait for the end of a pause fails at once and is not sent.
func TestPauseTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answers: []func() *http.Response{says(503, "Retry-After: 86400"), ok}}
		tr := transport(t, httpclient.Config{Base: p})
		if resp, err := tr.RoundTrip(request(t, "GET", url, nil)); err != nil || resp.StatusCode != 503 {
			t.Fatalf("got %v, %v; want the 503", resp, err)
		}

		body := watch("order")
		r := request(t, "PUT", url, nil)
		r.Body = body
		_, err := tr.RoundTrip(r)
		want := turns.WaitError{Subject: "host:api.example.com", Policy: "Retry-After", Needed: time.Hour, Patience: time.Minute}
		var got *turns.WaitError
		if !errors.As(err, &got) || *got != want || p.tries() != 1 || body.closes() != 1 {
			t.Errorf("got %v after %d tries; want %v after 1", err, p.tries(), &want)
		}

		// The pause ends after an hour.
		time.Sleep(time.Hour)
		if resp, err := tr.RoundTrip(request(t, "GET", url, nil)); err != nil || resp.StatusCode != 200 {
			t.Errorf("got %v, %v; want 200", resp, err)
		}
	})
}

// Requests whose turn came in a pause do not all go at its end: they keep to the rate.
func TestPauseKeepsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Time
		denied := 0
		base := roundTrip(func(*http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Now())
			if len(at) == 5 {
				denied++
				return answer(429, http.NoBody, "Retry-After: 5"), nil
			}
			return answer(200, http.NoBody), nil
		})

		tr := transport(t, httpclient.Config{Base: base, Store: gcra.NewMemory(), MaxWait: time.Hour,
			Policies: []httpclient.Policy{{Key: httpclient.ByHost, Limit: gcra.PerSecond(10).WithBurst(1)}}})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if resp, err := tr.RoundTrip(request(t, "GET", url, nil)); err != nil || resp.StatusCode != 200 {
					t.Errorf("got %v, %v; want 200", resp, err)
				}
			})
		}

		wg.Wait()
		if len(at) != 101 || denied != 1 {
			t.Fatalf("got %d tries and %d denials; want 101 and 1", len(at), denied)
		}

		for i := range at[1:] {
			interval := at[i+1].Sub(at[i])
			if interval < 100*time.Millisecond-tick {
				t.Errorf("try %d came %v after the one before; want at least 100ms", i+2, interval)
			}
			if i+1 == 5 && interval < 5*time.Second {
				t.Errorf("the try after the denial came after %v; want at least 5s", interval)
			}
		}
	})
}
