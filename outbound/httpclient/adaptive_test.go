package httpclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// shared is one key for all requests.
func shared(*http.Request) (string, error) { return "all", nil }

// direct is a server without a network, for virtual time.
type direct struct {
	http.Handler
	latency time.Duration
}

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(d.latency)
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// Two clients that know nothing of each other, each with three callers, share a limit of our
// middleware. With every form of headers, hardly any request is denied and most of the limit is used.
func TestAdaptiveOurMiddleware(t *testing.T) {
	for name, headers := range map[string]middleware.Headers{
		"draft6":  middleware.HeadersDraft6,
		"draft11": middleware.HeadersDraft11,
		"both":    middleware.HeadersDraft6 | middleware.HeadersDraft11,
		"x":       middleware.HeadersXRateLimit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const run, perSecond = 5 * time.Minute, 20
				limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Headers: headers},
					ratelimit.Policy{Name: "second", Key: shared, Limit: gcra.PerSecond(perSecond).WithBurst(50)},
					ratelimit.Policy{Name: "day", Key: shared, Limit: gcra.PerDay(1_000_000)})

				server := direct{limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), 20 * time.Millisecond}
				ctx, cancel := context.WithTimeout(t.Context(), run)
				defer cancel()

				var allowed, denied [2]atomic.Int64
				var wg sync.WaitGroup
				for client := range allowed {
					c := &http.Client{Transport: &httpclient.Adaptive{Base: server}}
					for range 3 {
						wg.Go(func() {
							for {
								r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/", http.NoBody)
								resp, err := c.Do(r)
								switch {
								case err != nil:
									return
								case resp.StatusCode == http.StatusOK:
									allowed[client].Add(1)
								default:
									denied[client].Add(1)
								}
							}
						})
					}
				}

				wg.Wait()
				a, b := allowed[0].Load(), allowed[1].Load()
				total := denied[0].Load() + denied[1].Load()
				t.Logf("allowed %d and %d, denied %d", a, b, total)
				if most := (a + b) / 100; total > most {
					t.Errorf("got %d denied; want at most %d", total, most)
				}

				if least := int64(run.Seconds() * perSecond * 0.9); a+b < least {
					t.Errorf("got %d allowed; want at least %d", a+b, least)
				}

				// The parts are random: in many runs one of two clients got between a
				// fifth and a half. outbound/simulate shows the parts of ten.
				if 10*min(a, b) < a+b {
					t.Errorf("got %d and %d allowed; want at least a tenth for each", a, b)
				}
			})
		})
	}
}

// Requests to a server that sends no fields are not delayed.
func TestAdaptivePlainServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var seen []httpclient.Event
		a := &httpclient.Adaptive{
			Base:    direct{http.NotFoundHandler(), time.Millisecond},
			Observe: func(_ *http.Request, e httpclient.Event) { seen = append(seen, e) },
		}

		for range 100 {
			r := httptest.NewRequest(http.MethodGet, "http://api.example/", http.NoBody)
			if _, err := a.RoundTrip(r); err != nil {
				t.Fatal(err)
			}
		}

		if got, want := time.Since(start), 100*time.Millisecond; got != want {
			t.Errorf("100 requests of 1 ms took %v; want %v", got, want)
		}
		want := httpclient.Event{Tries: 1, Status: http.StatusNotFound, Reason: httpclient.Answered}
		if len(seen) != 100 || seen[0] != want {
			t.Errorf("observed %d events, first %+v; want 100, %+v", len(seen), seen[0], want)
		}
	})
}

// The zero value works.
func TestAdaptiveZeroValue(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("RateLimit-Remaining", "100") }))
	defer server.Close()
	c := &http.Client{Transport: &httpclient.Adaptive{}}
	defer c.CloseIdleConnections()
	for range 10 {
		resp, err := c.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
}

// A canceled request returns at once while it sleeps, and other hosts are not delayed.
func TestAdaptiveSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &httpclient.Adaptive{Base: direct{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Host == "busy.example" {
				w.Header().Set("Retry-After", "60")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}), 0}}

		call := func(ctx context.Context, url string) (int, error) {
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
			resp, err := a.RoundTrip(r)
			if err != nil {
				return 0, err
			}
			return resp.StatusCode, nil
		}

		if status, err := call(t.Context(), "http://busy.example/"); status != http.StatusTooManyRequests || err != nil {
			t.Errorf("got %d, %v; want the denial", status, err)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := call(ctx, "http://busy.example/"); !errors.Is(err, turns.ErrWouldWait) || time.Since(start) != 0 {
			t.Errorf("got %v after %v; want ErrWouldWait at once, since the deadline comes first", err, time.Since(start))
		}

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := call(ctx, "http://busy.example/"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v; want the cancellation", err)
		}
		if got := time.Since(start); got != time.Second {
			t.Errorf("returned after %v; want 1s", got)
		}

		if _, err := call(t.Context(), "http://idle.example/"); err != nil || time.Since(start) != time.Second {
			t.Errorf("another host: got %v after %v; want no sleep", err, time.Since(start)-time.Second)
		}
		if _, err := call(t.Context(), "http://busy.example/"); err != nil || time.Since(start) < time.Minute {
			t.Errorf("got %v after %v; want at least the Retry-After", err, time.Since(start))
		}
	})
}

// GitHub's core and search have limits of their own under one Key: one that is used up holds back no other route.
func TestAdaptiveKeepsLimitsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &httpclient.Adaptive{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/search/issues" {
				return answer(403, http.NoBody, "X-RateLimit-Resource: search", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 50"), nil
			}
			return answer(200, http.NoBody, "X-RateLimit-Resource: core", "X-RateLimit-Remaining: 4999", "X-RateLimit-Reset: 3600"), nil
		})}

		for i, step := range []struct {
			path        string
			least, most time.Duration
		}{
			{"/repos/o/r", 0, 0}, {"/search/issues", 0, 0},
			{"/repos/o/r", 0, time.Second}, {"/search/issues", 50 * time.Second, 55 * time.Second},
		} {
			begin := time.Now()
			if _, err := a.RoundTrip(request(t, "GET", "https://api.github.example"+step.path, nil)); err != nil {
				t.Fatal(err)
			}
			between(t, fmt.Sprint("request ", i+1, " to ", step.path), time.Since(begin), step.least, step.most)
		}
	})
}

// If Key fails, the request is not sent.
func TestAdaptiveKey(t *testing.T) {
	noTenant := errors.New("no tenant")
	a := &httpclient.Adaptive{Key: func(*http.Request) (string, error) { return "", noTenant }}
	body := watch("text")
	r := httptest.NewRequest(http.MethodPost, "http://api.example/", body)
	if _, err := a.RoundTrip(r); !errors.Is(err, noTenant) {
		t.Errorf("got %v; want the key's error", err)
	}
	if body.closes() != 1 {
		t.Errorf("body closed %d times; want once", body.closes())
	}
}

// An Adaptive paces a thousand hosts. With more it forgets the one that was not used for longest.
func TestAdaptiveManyHosts(t *testing.T) {
	a := &httpclient.Adaptive{MaxWait: time.Second, Base: roundTrip(func(*http.Request) (*http.Response, error) {
		return answer(http.StatusTooManyRequests, http.NoBody, "Retry-After: 3600"), nil
	})}

	held := func(host int) bool {
		_, err := a.RoundTrip(request(t, "GET", fmt.Sprintf("http://h%d.example/", host), nil))
		return errors.Is(err, turns.ErrWouldWait)
	}
	if held(0) || held(1) || !held(0) {
		t.Fatal("want a host to be held back after its first response")
	}

	for i := range 1100 {
		if held(2 + i); !held(1) {
			t.Fatalf("after %d other hosts one is forgotten that is in use", i)
		}
	}

	if held(0) {
		t.Error("a host that was not used is still held back after 1100 others; want it forgotten")
	}
}

// Of several Adaptives, each for a limit of its own, the lower ones also keep to what a Transport above says.
func TestAdaptiveOnAdaptive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var below httpclient.Event
		tries := 0
		transport := httpclient.Must(httpclient.New(httpclient.Config{
			MaxWait: 5 * time.Second,
			Denied: func(resp *http.Response, told httpclient.Denial) httpclient.Denial {
				if resp.StatusCode == 400 {
					told = httpclient.Denial{Denied: true, Wait: 2 * time.Second}
				}
				return told
			},
			Base: &httpclient.Adaptive{Base: &httpclient.Adaptive{
				Key:     shared,
				Observe: func(_ *http.Request, e httpclient.Event) { below = e },
				Base: roundTrip(func(*http.Request) (*http.Response, error) {
					if tries++; tries == 1 {
						return answer(400, http.NoBody), nil
					}
					return answer(429, http.NoBody, "Retry-After: 20"), nil
				}),
			}},
		}))

		get := func(url string) time.Duration {
			began := time.Now()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := transport.RoundTrip(r); err != nil && !errors.Is(err, turns.ErrWouldWait) {
				t.Error(err)
			}
			return time.Since(began)
		}

		if took := get("http://a.example/"); tries != 2 || took < 2*time.Second {
			t.Errorf("got %d tries in %v; want one more after 2 s", tries, took)
		}

		// The lower Adaptive holds back this host, too.
		if took := get("http://b.example/"); took > 0 || tries != 2 || below.Reason != httpclient.TooLong {
			t.Errorf("got an answer after %v and %d tries, %+v; want an error at once, as 20 s are more than MaxWait", took, tries, below)
		}
	})
}
