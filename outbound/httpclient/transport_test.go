package httpclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

const (
	url     = "https://api.example.com/orders"
	hunter2 = "c13e77fb8a8c93fb73db8c9b9eb69ef5" // printf %s 'Bearer hunter2' | sha256sum, the first half
)

// A waiting request returns when its context ends.
func TestCancel(t *testing.T) {
	inTurns := func(cfg *httpclient.Config) {
		cfg.Store = gcra.NewMemory()
		cfg.Policies = []httpclient.Policy{{Key: httpclient.ByHost, Limit: gcra.PerMinute(1).WithBurst(1)}}
		cfg.MaxWait = time.Hour
	}

	for _, tt := range []struct {
		name   string
		answer func() *http.Response
		change func(*httpclient.Config)
		before int // requests
		sent   int // of all requests
	}{
		{"turn", ok, inTurns, 1, 1},
		{"pause after another request", says(429, "Retry-After: 30"), func(cfg *httpclient.Config) { cfg.MaxTries = 1 }, 1, 1},
		{"Retry-After", says(429, "Retry-After: 30"), func(*httpclient.Config) {}, 0, 1},
		{"back-off", says(429), func(*httpclient.Config) {}, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{answers: []func() *http.Response{tt.answer}}
				cfg := httpclient.Config{Base: p}
				tt.change(&cfg)
				tr := transport(t, cfg)
				for range tt.before {
					if _, err := tr.RoundTrip(request(t, "GET", url, nil)); err != nil {
						t.Fatal(err)
					}
				}

				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(200*time.Millisecond, cancel)
				begin := time.Now()
				r := requestIn(ctx, t, "PUT", url, nil)
				body := watch("order")
				r.Body, r.GetBody = body, func() (io.ReadCloser, error) { return watch("order"), nil }
				resp, err := tr.RoundTrip(r)
				if resp != nil || !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, %v; want context.Canceled", resp, err)
				}

				between(t, "time", time.Since(begin), 200*time.Millisecond, 200*time.Millisecond)
				if p.tries() != tt.sent {
					t.Errorf("got %d tries; want %d", p.tries(), tt.sent)
				}
				if body.closes() != 1 {
					t.Errorf("the request's body was closed %d times; want once", body.closes())
				}
			})
		})
	}
}

// RoundTrip returns an error of Base as it is.
func TestBaseError(t *testing.T) {
	broken := errors.New("connection reset")
	var event httpclient.Event
	tr := transport(t, httpclient.Config{
		Base:    roundTrip(func(*http.Request) (*http.Response, error) { return nil, broken }),
		Observe: func(_ *http.Request, e httpclient.Event) { event = e },
	})
	resp, err := tr.RoundTrip(request(t, "GET", url, nil))
	if resp != nil || err != broken || event != (httpclient.Event{Tries: 1, Reason: httpclient.Failed, Err: broken}) {
		t.Errorf("got %v, %v, %+v; want Base's error", resp, err, event)
	}
}

// A Base may return a response without a body, or neither response nor error.
func TestIncompleteBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []*http.Response{answer(429, nil), nil}
		tr := transport(t, httpclient.Config{Base: roundTrip(func(*http.Request) (*http.Response, error) {
			resp := answers[0]
			answers = answers[1:]
			return resp, nil
		})})
		if resp, err := tr.RoundTrip(request(t, "GET", url, nil)); resp != nil || err != nil {
			t.Errorf("got %v, %v; want what Base returned", resp, err)
		}
	})
}

// Base rejects a request without a URL.
func TestNoURL(t *testing.T) {
	body := watch("order")
	_, err := transport(t, httpclient.Config{}).RoundTrip(&http.Request{Body: body})
	if err == nil || body.closes() != 1 {
		t.Errorf("got %v, body closed %d times; want an error and once", err, body.closes())
	}
}

// A request that is not sent returns the reason, and its body is closed.
func TestNotSent(t *testing.T) {
	noKey := errors.New("no tenant")
	policy := func(change func(*httpclient.Policy)) []httpclient.Policy {
		p := httpclient.Policy{Name: "p", Key: httpclient.ByHost, Limit: gcra.PerHour(2)}
		change(&p)
		return []httpclient.Policy{p}
	}

	for _, tt := range []struct {
		name     string
		store    gcra.Store
		policies []httpclient.Policy
		want     error
		reason   httpclient.Reason
	}{
		{"the store fails", failingStore{}, policy(func(*httpclient.Policy) {}), errStore, httpclient.Failed},
		{"no key", gcra.NewMemory(), policy(func(p *httpclient.Policy) {
			p.Key = func(*http.Request) (string, error) { return "", noKey }
		}), noKey, httpclient.Failed},
		{"cost below 0", gcra.NewMemory(), policy(func(p *httpclient.Policy) {
			p.Cost = func(*http.Request) int64 { return -1 }
		}), nil, httpclient.Failed},
		{"cost above the burst", gcra.NewMemory(), policy(func(p *httpclient.Policy) {
			p.Cost = func(*http.Request) int64 { return 3 }
		}), turns.ErrWouldWait, httpclient.TooLong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &partner{answers: []func() *http.Response{ok}}
			var event httpclient.Event
			tr := transport(t, httpclient.Config{Base: p, Store: tt.store, Policies: tt.policies,
				Observe: func(_ *http.Request, e httpclient.Event) { event = e }})
			body := watch("order")
			r := request(t, "POST", url, nil)
			r.Body = body
			resp, err := tr.RoundTrip(r)
			if resp != nil || err == nil || tt.want != nil && !errors.Is(err, tt.want) || p.tries() != 0 {
				t.Errorf("got %v, %v and %d tries; want error %v and none", resp, err, p.tries(), tt.want)
			}

			if event.Err != err || event.Reason != tt.reason || event.Tries != 0 || event.Status != 0 {
				t.Errorf("got %+v; want %q", event, tt.reason)
			}
			if body.closes() != 1 {
				t.Errorf("the body was closed %d times; want once", body.closes())
			}
		})
	}
}

// Two windows, 25 per 5 s and 300 per minute, are charged together. A request that is too late for
// one of them changes neither.
func TestTwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		five, minute := gcra.Limit{Count: 25, Per: 5 * time.Second}, gcra.PerMinute(300).WithBurst(30)
		m := gcra.NewMemory()
		p := &partner{answers: []func() *http.Response{ok}}
		tr := transport(t, httpclient.Config{Base: p, Store: m, Margin: -1, MaxWait: time.Hour, Policies: []httpclient.Policy{
			{Name: "5s", Key: httpclient.ByHost, Limit: five},
			{Name: "minute", Key: keyfunc.Const("partner"), Limit: minute, MaxDelay: 2 * time.Second},
		}})

		begin := time.Now()
		for range 40 {
			if _, err := tr.RoundTrip(request(t, "GET", url, nil)); err != nil {
				t.Fatal(err)
			}
		}

		// 25 at once, then one in 200 ms.
		between(t, "40 requests", time.Since(begin), 3*time.Second, 3*time.Second)

		// Another host has its own 5s, but the queue of the minute is full.
		peek := func() (a, b gcra.Result) {
			charges := []gcra.Charge{
				{Subject: "host:other.example.com", Policy: "5s", Limit: five, MaxDelay: time.Hour, Peek: true},
				{Subject: "const:partner", Policy: "minute", Limit: minute, MaxDelay: 2 * time.Second, Peek: true},
			}
			if _, err := m.Take(t.Context(), charges); err != nil {
				t.Fatal(err)
			}
			return charges[0].Result, charges[1].Result
		}

		for {
			c := gcra.Charge{Subject: "const:partner", Policy: "minute", Limit: minute, MaxDelay: 2 * time.Second, MaxWait: 2 * time.Second}
			if r, err := gcra.Take(t.Context(), m, c); err != nil || !r.Allowed {
				break
			}
		}

		a, b := peek()
		_, err := tr.RoundTrip(request(t, "GET", "https://other.example.com", nil))
		var wait *turns.WaitError
		if !errors.As(err, &wait) || wait.Policy != "minute" || wait.Subject != "const:partner" || wait.Patience != 2*time.Second {
			t.Errorf("got %v; want a WaitError of the minute", err)
		}
		if a2, b2 := peek(); a2 != a || b2 != b || a.ResetAfter != 0 {
			t.Errorf("afterwards got %+v and %+v; want %+v and %+v as before", a2, b2, a, b)
		}
	})
}

// A turn beyond MaxWait or the deadline fails at once and takes nothing. Costs and keys count.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answers: []func() *http.Response{ok}}
		var event httpclient.Event
		tr := transport(t, httpclient.Config{Base: p, Store: gcra.NewMemory(), Margin: -1, MaxWait: 3 * time.Second, Policies: []httpclient.Policy{{
			Key: httpclient.ByCredential, Limit: gcra.Limit{Count: 1, Per: time.Second, Burst: 4},
			Cost: func(r *http.Request) int64 { return int64(len(r.URL.Path) - 1) },
		}}, Observe: func(_ *http.Request, e httpclient.Event) { event = e }})

		get := func(ctx context.Context, path, token string) (time.Duration, error) {
			begin := time.Now()
			_, err := tr.RoundTrip(requestIn(ctx, t, "GET", "https://api.example.com/"+path, nil, "Authorization: "+token))
			return time.Since(begin), err
		}

		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		for i, step := range []struct {
			ctx    context.Context
			path   string
			token  string
			want   time.Duration
			passes bool
		}{
			{t.Context(), "xxxx", "a", 0, true}, // the whole burst
			{t.Context(), "", "a", 0, true},     // costs nothing and does not wait
			{short, "xx", "a", 0, false},        // would have to wait for 2 s
			{t.Context(), "xxxx", "b", 0, true}, // another credential
			{t.Context(), "xx", "a", 2 * time.Second, true},
			{t.Context(), "xxxx", "a", 0, false}, // would have to wait for 4 s
			{t.Context(), "xxx", "a", 3 * time.Second, true},
			{t.Context(), "xxxxx", "a", 0, false}, // never
		} {
			took, err := get(step.ctx, step.path, step.token)
			if took != step.want || (err == nil) != step.passes || err != nil && !errors.Is(err, turns.ErrWouldWait) {
				t.Errorf("step %d: got %v after %v; want %v, passing %v", i+1, err, took, step.want, step.passes)
			}
			if event.Waited != took {
				t.Errorf("step %d: got an Event with Waited %v; want %v", i+1, event.Waited, took)
			}
		}
	})
}

// Each try of a denied request takes a turn, so that all tries keep to the rate.
func TestTriesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answers: []func() *http.Response{says(429), says(429), ok}}
		tr := transport(t, httpclient.Config{Base: p, Store: gcra.NewMemory(), Margin: -1,
			Policies: []httpclient.Policy{{Key: httpclient.ByHost, Limit: gcra.PerMinute(6).WithBurst(1)}}})
		if _, err := tr.RoundTrip(request(t, "GET", url, nil)); err != nil {
			t.Fatal(err)
		}
		for i := range p.at[1:] {
			between(t, fmt.Sprintf("interval before try %d", i+2), p.at[i+1].Sub(p.at[i]), 10*time.Second-tick, 10*time.Second+tick)
		}
	})
}

type idler struct {
	http.RoundTripper
	closed *int
}

func (i idler) CloseIdleConnections() { *i.closed++ }

func TestCloseIdleConnections(t *testing.T) {
	closed := 0
	(&http.Client{Transport: transport(t, httpclient.Config{Base: idler{closed: &closed}})}).CloseIdleConnections()
	(&http.Client{Transport: transport(t, httpclient.Config{Base: roundTrip(nil)})}).CloseIdleConnections()
	if closed != 1 {
		t.Errorf("Base closed its connections %d times; want once", closed)
	}
}
