package httpclient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/adapters/httpclient"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

const (
	url     = "https://api.example.com/orders"
	hunter2 = "c13e77fb8a8c93fb73db8c9b9eb69ef5" // printf %s 'Bearer hunter2' | sha256sum, the first half
)

// A refusal is obeyed when the request may be sent again, and else handed on.
func TestRefusals(t *testing.T) {
	const s = time.Second
	stream := func() io.Reader { return struct{ io.Reader }{strings.NewReader("order")} } // no GetBody
	buffer := func() io.Reader { return strings.NewReader("order") }
	none := func() io.Reader { return nil }
	dated := func(at time.Duration, fields ...string) []string {
		now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
		return append(fields, "Retry-After: "+now.Add(at).Format(http.TimeFormat), "Date: "+now.Format(http.TimeFormat))
	}
	for _, tt := range []struct {
		name   string
		method string
		body   func() io.Reader
		header []string // of the request
		first  int      // status of the first answer; the second is 200
		fields []string // of the first answer
		want   int      // status that the caller gets
		least  time.Duration
		most   time.Duration
		reason httpclient.Reason
	}{
		// Seconds, and up to a tenth more.
		{"429", "GET", none, nil, 429, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},
		{"503", "GET", none, nil, 503, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},
		{"blanks", "GET", none, nil, 429, []string{"Retry-After:  2 "}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},

		// A date goes by the server's clock, in each form that HTTP knows.
		{"date", "GET", none, nil, 429, dated(3 * s), 200, 3 * s, 3300 * time.Millisecond, httpclient.Answered},
		{"date, 503", "GET", none, nil, 503, dated(3 * s), 200, 3 * s, 3300 * time.Millisecond, httpclient.Answered},
		{"date without Date", "GET", none, nil, 429, []string{"Retry-After: Sat, 01 Jan 2000 00:00:03 GMT"}, 200, 3 * s, 3300 * time.Millisecond, httpclient.Answered},
		{"date of RFC 850", "GET", none, nil, 429, []string{"Retry-After: Saturday, 01-Jan-00 00:00:03 GMT"}, 200, 3 * s, 3300 * time.Millisecond, httpclient.Answered},
		{"date of asctime", "GET", none, nil, 429, []string{"Retry-After: Sat Jan  1 00:00:03 2000"}, 200, 3 * s, 3300 * time.Millisecond, httpclient.Answered},

		// What names no time to come is backed off from.
		{"429 alone", "GET", none, nil, 429, nil, 200, s / 4, s / 2, httpclient.Answered},
		{"now", "GET", none, nil, 429, []string{"Retry-After: 0"}, 200, s / 4, s / 2, httpclient.Answered},
		{"date gone", "GET", none, nil, 429, dated(-3 * s), 200, s / 4, s / 2, httpclient.Answered},
		{"garbage", "GET", none, nil, 429, []string{"Retry-After: soon"}, 200, s / 4, s / 2, httpclient.Answered},
		{"negative", "GET", none, nil, 429, []string{"Retry-After: -5"}, 200, s / 4, s / 2, httpclient.Answered},
		{"fraction", "GET", none, nil, 429, []string{"Retry-After: 1.5"}, 200, s / 4, s / 2, httpclient.Answered},

		// No refusals.
		{"503 alone", "GET", none, nil, 503, nil, 503, 0, 0, httpclient.Answered},
		{"503, garbage", "GET", none, nil, 503, []string{"Retry-After: soon"}, 503, 0, 0, httpclient.Answered},
		{"500", "GET", none, nil, 500, []string{"Retry-After: 2"}, 500, 0, 0, httpclient.Answered},
		{"301", "GET", none, nil, 301, []string{"Retry-After: 2"}, 301, 0, 0, httpclient.Answered},

		// Too long, and far too long.
		{"above MaxWait", "GET", none, nil, 429, []string{"Retry-After: 61"}, 429, 0, 0, httpclient.TooLong},
		{"years", "GET", none, nil, 503, []string{"Retry-After: 99999999999999999999"}, 503, 0, 0, httpclient.TooLong},
		{"ages", "GET", none, nil, 503, []string{"Retry-After: 9223372036854775807"}, 503, 0, 0, httpclient.TooLong},
		{"in the year 9999", "GET", none, nil, 503, []string{"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"}, 503, 0, 0, httpclient.TooLong},

		// Methods that may be sent again, and those that may with a key.
		{"no method", "", none, nil, 429, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},
		{"HEAD", "HEAD", none, nil, 429, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},
		{"OPTIONS", "OPTIONS", none, nil, 429, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},
		{"TRACE", "TRACE", none, nil, 429, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},
		{"PUT", "PUT", buffer, nil, 429, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},
		{"DELETE", "DELETE", none, nil, 429, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},
		{"POST", "POST", buffer, nil, 429, []string{"Retry-After: 2"}, 429, 0, 0, httpclient.NotReplayable},
		{"PATCH", "PATCH", buffer, nil, 503, []string{"Retry-After: 2"}, 503, 0, 0, httpclient.NotReplayable},
		{"POST without a body", "POST", none, nil, 429, nil, 429, 0, 0, httpclient.NotReplayable},
		{"CONNECT", "CONNECT", none, nil, 429, nil, 429, 0, 0, httpclient.NotReplayable},
		{"get", "get", none, nil, 429, nil, 429, 0, 0, httpclient.NotReplayable},
		{"POST with a key", "POST", buffer, []string{"Idempotency-Key: 7"}, 429, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},
		{"POST with an old key", "POST", buffer, []string{"X-Idempotency-Key: 7"}, 429, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},

		// A body that cannot be had again.
		{"PUT of a stream", "PUT", stream, nil, 429, []string{"Retry-After: 2"}, 429, 0, 0, httpclient.NotReplayable},
		{"POST of a stream with a key", "POST", stream, []string{"Idempotency-Key: 7"}, 429, nil, 429, 0, 0, httpclient.NotReplayable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{answers: []func() *http.Response{says(tt.first, tt.fields...), ok}}
				var event httpclient.Event
				tr := transport(t, httpclient.Config{Base: p, Observe: func(_ *http.Request, e httpclient.Event) { event = e }})
				r := request(t, tt.method, url, tt.body(), tt.header...)
				begin := time.Now()
				resp, err := tr.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				took := time.Since(begin)
				between(t, "time", took, tt.least, tt.most)
				if resp.StatusCode != tt.want {
					t.Errorf("got status %d; want %d", resp.StatusCode, tt.want)
				}
				tries := 1
				if tt.first != tt.want {
					tries = 2
				}
				want := httpclient.Event{Tries: tries, Waited: took, Status: tt.want, Reason: tt.reason}
				if event != want || p.tries() != tries {
					t.Errorf("got %+v after %d tries; want %+v", event, p.tries(), want)
				}
				if got, want := text(t, resp), "answer "+http.StatusText(tt.want); got != want {
					t.Errorf("got body %q; want %q", got, want)
				}
				for i, b := range p.given {
					if b.closes() != 1 {
						t.Errorf("answer %d was closed %d times; want once", i+1, b.closes())
					}
				}
			})
		})
	}
}

// A server that never stops refusing is left alone after MaxTries, or when the
// next try would begin after MaxWait, and the caller gets its last word.
func TestNeverStopsRefusing(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name        string
		answer      func() *http.Response
		cfg         httpclient.Config
		tries       int
		least, most time.Duration
		reason      httpclient.Reason
	}{
		{"tries", later, httpclient.Config{}, 5, 8 * s, 8800 * time.Millisecond, httpclient.TooManyTries},
		{"3 tries", later, httpclient.Config{MaxTries: 3}, 3, 4 * s, 4400 * time.Millisecond, httpclient.TooManyTries},
		{"never again", later, httpclient.Config{MaxTries: 1}, 1, 0, 0, httpclient.TooManyTries},
		{"time", later, httpclient.Config{MaxTries: 100, MaxWait: 10 * s}, 5, 8 * s, 10 * s, httpclient.TooLong},
		// 0.5, 1, 2, 4, 8, 10, 10: of each the half to the whole.
		{"backing off", says(429), httpclient.Config{MaxTries: 8}, 8, 17750 * time.Millisecond, 35500 * time.Millisecond, httpclient.TooManyTries},
		{"backing off for long", says(429), httpclient.Config{MaxTries: 1000, MaxWait: time.Hour}, -1, 3590 * s, time.Hour, httpclient.TooLong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{answers: []func() *http.Response{tt.answer}}
				var event httpclient.Event
				tt.cfg.Base = p
				tt.cfg.Observe = func(_ *http.Request, e httpclient.Event) { event = e }
				begin := time.Now()
				resp, err := transport(t, tt.cfg).RoundTrip(request(t, "GET", url, nil))
				if err != nil {
					t.Fatal(err)
				}
				between(t, "time", time.Since(begin), tt.least, tt.most)
				if resp.StatusCode != 429 || text(t, resp) != "answer Too Many Requests" {
					t.Errorf("got status %d; want the last 429 with its body", resp.StatusCode)
				}
				if tt.tries > 0 && p.tries() != tt.tries || event.Tries != p.tries() || event.Reason != tt.reason {
					t.Errorf("got %+v after %d tries; want %d and %q", event, p.tries(), tt.tries, tt.reason)
				}
			})
		})
	}
}

// A refusal that asks for more than the context's deadline allows is handed on
// at once.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answers: []func() *http.Response{later}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		resp, err := transport(t, httpclient.Config{Base: p}).RoundTrip(requestIn(ctx, t, "GET", url, nil))
		if err != nil || resp.StatusCode != 429 || p.tries() != 1 || time.Since(begin) != 0 {
			t.Errorf("got %v, %v after %v and %d tries; want the 429 at once", resp, err, time.Since(begin), p.tries())
		}
	})
}

// Whatever a request waits for, it returns when its context ends.
func TestCancel(t *testing.T) {
	turns := func(cfg *httpclient.Config) {
		cfg.Store = gcra.NewMemory()
		cfg.Policies = []httpclient.Policy{{Key: httpclient.ByHost, Limit: gcra.PerMinute(1).WithBurst(1)}}
		cfg.MaxWait = time.Hour
	}
	for _, tt := range []struct {
		name   string
		answer func() *http.Response
		change func(*httpclient.Config)
		before int // requests
		sent   int // of all, the one that is cancelled included
	}{
		{"turn", ok, turns, 1, 1},
		{"pause of another", says(429, "Retry-After: 30"), func(cfg *httpclient.Config) { cfg.MaxTries = 1 }, 1, 1},
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

// A request whose context has ended is not sent, and takes no turn.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answers: []func() *http.Response{ok}}
		tr := transport(t, httpclient.Config{Base: p, Store: gcra.NewMemory(), Policies: []httpclient.Policy{{Key: httpclient.ByHost, Limit: gcra.PerMinute(1)}}})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := tr.RoundTrip(requestIn(ctx, t, "GET", url, nil)); !errors.Is(err, context.Canceled) || p.tries() != 0 {
			t.Errorf("got %v and %d tries; want context.Canceled and none", err, p.tries())
		}
		begin := time.Now()
		if _, err := tr.RoundTrip(request(t, "GET", url, nil)); err != nil || time.Since(begin) != 0 {
			t.Errorf("the next: got %v after %v; want to go at once", err, time.Since(begin))
		}
	})
}

// Each try carries the same bytes, from a reader of its own.
func TestBodyReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := make([]byte, 1<<20)
		for i := range body {
			body[i] = byte(i * i >> 3)
		}
		p := &partner{answers: []func() *http.Response{later, says(503, "Retry-After: 1"), says(429), ok}}
		r := request(t, "PUT", url, bytes.NewReader(body))
		first, getBody := r.Body, r.GetBody
		var handed []*watched
		r.GetBody = func() (io.ReadCloser, error) {
			b, err := getBody()
			w := &watched{Reader: b}
			handed = append(handed, w)
			return w, err
		}
		resp, err := transport(t, httpclient.Config{Base: p}).RoundTrip(r)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("got %v, %v; want 200", resp, err)
		}
		if len(p.bodies) != 4 {
			t.Fatalf("got %d tries; want 4", len(p.bodies))
		}
		for i, b := range p.bodies {
			if b != string(body) {
				t.Errorf("try %d: got %d bytes that differ; want the same %d", i+1, len(b), len(body))
			}
		}
		if len(handed) != 3 {
			t.Errorf("GetBody was called %d times; want 3", len(handed))
		}
		for i, w := range handed {
			if w.closes() != 1 {
				t.Errorf("body of try %d was closed %d times; want once", i+2, w.closes())
			}
		}
		if r.Body != first {
			t.Error("the request's Body is another one than before")
		}
	})
}

// GetBody fails: the error says so, and what was refused is closed.
func TestGetBodyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("the file is gone")
		p := &partner{answers: []func() *http.Response{later}}
		r := request(t, "PUT", url, strings.NewReader("order"))
		r.GetBody = func() (io.ReadCloser, error) { return nil, gone }
		resp, err := transport(t, httpclient.Config{Base: p}).RoundTrip(r)
		if resp != nil || !errors.Is(err, gone) || p.tries() != 1 || p.given[0].closes() != 1 {
			t.Errorf("got %v, %v after %d tries; want the error of GetBody after one", resp, err, p.tries())
		}
	})
}

// A RoundTripper does not change the request, and the headers of a replay are
// not shared with it.
func TestLeavesTheRequestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := request(t, "PUT", url, strings.NewReader("order"), "Authorization: Bearer secret", "X-A: 1", "X-A: 2")
		before := r.Clone(r.Context())
		tries := 0
		base := roundTrip(func(out *http.Request) (*http.Response, error) {
			tries++
			out.Body.Close()
			if !reflect.DeepEqual(out.Header, before.Header) || out.URL.String() != url || out.ContentLength != 5 || out.Host != before.Host {
				t.Errorf("try %d: got %+v; want the request", tries, out)
			}
			if tries > 1 {
				out.Header.Set("X-A", "changed")
				return answer(200, http.NoBody), nil
			}
			return answer(429, http.NoBody, "Retry-After: 1"), nil
		})
		if _, err := transport(t, httpclient.Config{Base: base}).RoundTrip(r); err != nil || tries != 2 {
			t.Fatalf("got %v after %d tries; want 2", err, tries)
		}
		if !reflect.DeepEqual(r.Header, before.Header) {
			t.Errorf("got header %v; want %v", r.Header, before.Header)
		}
	})
}

// Base's own errors come through as they are: they are no refusals.
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

// A Base that gives no body, or nothing at all, does no harm.
func TestCarelessBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []*http.Response{answer(429, nil), nil}
		tr := transport(t, httpclient.Config{Base: roundTrip(func(*http.Request) (*http.Response, error) {
			resp := answers[0]
			answers = answers[1:]
			return resp, nil
		})})
		if resp, err := tr.RoundTrip(request(t, "GET", url, nil)); resp != nil || err != nil {
			t.Errorf("got %v, %v; want what Base gave", resp, err)
		}
	})
}

// Requests without a URL are Base's to reject.
func TestNoURL(t *testing.T) {
	body := watch("order")
	_, err := transport(t, httpclient.Config{}).RoundTrip(&http.Request{Body: body})
	if err == nil || body.closes() != 1 {
		t.Errorf("got %v, body closed %d times; want an error and once", err, body.closes())
	}
}

// What is not sent says why, and its body is closed all the same.
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
		{"the store is away", awayStore{}, policy(func(*httpclient.Policy) {}), errAway, httpclient.Failed},
		{"no key", gcra.NewMemory(), policy(func(p *httpclient.Policy) {
			p.Key = func(*http.Request) (string, error) { return "", noKey }
		}), noKey, httpclient.Failed},
		{"cost below 0", gcra.NewMemory(), policy(func(p *httpclient.Policy) {
			p.Cost = func(*http.Request) int { return -1 }
		}), nil, httpclient.Failed},
		{"cost above the burst", gcra.NewMemory(), policy(func(p *httpclient.Policy) {
			p.Cost = func(*http.Request) int { return 3 }
		}), gcra.ErrWouldWait, httpclient.TooLong},
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

// Two windows, 25 per 5 s and 300 per minute, are charged together: a request
// that one of them cannot serve in time leaves both as they were.
func TestTwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		five, minute := gcra.Limit{Count: 25, Per: 5 * time.Second}, gcra.PerMinute(300).WithBurst(30)
		m := gcra.NewMemory()
		p := &partner{answers: []func() *http.Response{ok}}
		tr := transport(t, httpclient.Config{Base: p, Store: m, MaxWait: time.Hour, Policies: []httpclient.Policy{
			{Name: "5s", Key: httpclient.ByHost, Limit: five},
			{Name: "minute", Key: keyfunc.Const("partner"), Limit: minute, MaxDelay: 2 * time.Second},
		}})
		begin := time.Now()
		for range 40 {
			if _, err := tr.RoundTrip(request(t, "GET", url, nil)); err != nil {
				t.Fatal(err)
			}
		}
		// 25 at once, then one in 200 ms: only then 40 have gone.
		between(t, "40 requests", time.Since(begin), 3*time.Second, 3*time.Second)

		// Another host has its own 5s, but the minute's queue is full.
		peek := func() (a, b gcra.Result) {
			charges := []gcra.Charge{
				{Subject: "host:other.example.com", Policy: "5s", Limit: five, MaxDelay: time.Hour},
				{Subject: "const:partner", Policy: "minute", Limit: minute, MaxDelay: 2 * time.Second},
			}
			if _, err := m.Take(t.Context(), charges); err != nil {
				t.Fatal(err)
			}
			return charges[0].Result, charges[1].Result
		}
		for {
			c := gcra.Charge{Subject: "const:partner", Policy: "minute", Limit: minute, Cost: 1, MaxDelay: 2 * time.Second}
			if r, err := gcra.Take(t.Context(), m, c); err != nil || !r.Allowed {
				break
			}
		}
		a, b := peek()
		_, err := tr.RoundTrip(request(t, "GET", "https://other.example.com", nil))
		var wait *gcra.WaitError
		if !errors.As(err, &wait) || wait.Policy != "minute" || wait.Subject != "const:partner" || wait.Allowed != 2*time.Second {
			t.Errorf("got %v; want a WaitError of the minute", err)
		}
		if a2, b2 := peek(); a2 != a || b2 != b || a.ResetAfter != 0 {
			t.Errorf("afterwards got %+v and %+v; want %+v and %+v as before", a2, b2, a, b)
		}
	})
}

// A turn beyond MaxWait or the deadline fails at once and takes nothing, and
// costs and keys count as they say.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answers: []func() *http.Response{ok}}
		var event httpclient.Event
		tr := transport(t, httpclient.Config{Base: p, Store: gcra.NewMemory(), MaxWait: 3 * time.Second, Policies: []httpclient.Policy{{
			Key: httpclient.ByCredential, Limit: gcra.Limit{Count: 1, Per: time.Second, Burst: 4},
			Cost: func(r *http.Request) int { return len(r.URL.Path) - 1 },
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
			{t.Context(), "", "a", 0, true},     // costs nothing, waits for nobody
			{short, "xx", "a", 0, false},        // would have to wait for 2 s
			{t.Context(), "xxxx", "b", 0, true}, // another credential
			{t.Context(), "xx", "a", 2 * time.Second, true},
			{t.Context(), "xxxx", "a", 0, false}, // would have to wait for 4 s
			{t.Context(), "xxx", "a", 3 * time.Second, true},
			{t.Context(), "xxxxx", "a", 0, false}, // never
		} {
			took, err := get(step.ctx, step.path, step.token)
			if took != step.want || (err == nil) != step.passes || err != nil && !errors.Is(err, gcra.ErrWouldWait) {
				t.Errorf("step %d: got %v after %v; want %v, passing %v", i+1, err, took, step.want, step.passes)
			}
			if event.Waited != took {
				t.Errorf("step %d: Observe hears of %v; want %v", i+1, event.Waited, took)
			}
		}
	})
}

// A refused request takes a turn for each try, so that the partner sees the
// agreed rate, refusals included.
func TestTriesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answers: []func() *http.Response{says(429), says(429), ok}}
		tr := transport(t, httpclient.Config{Base: p, Store: gcra.NewMemory(),
			Policies: []httpclient.Policy{{Key: httpclient.ByHost, Limit: gcra.PerMinute(6).WithBurst(1)}}})
		if _, err := tr.RoundTrip(request(t, "GET", url, nil)); err != nil {
			t.Fatal(err)
		}
		for i := range p.at[1:] {
			between(t, fmt.Sprintf("gap before try %d", i+2), p.at[i+1].Sub(p.at[i]), 10*time.Second-tick, 10*time.Second+tick)
		}
	})
}

// A Retry-After holds back whom it is for: after a 503 all requests to the
// host, after a 429 those of the same credential.
func TestPause(t *testing.T) {
	type other struct {
		url, token string
		held       bool
	}
	for _, tt := range []struct {
		name   string
		answer func() *http.Response
		method string // of the refused request
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
		{"not sent again itself", later, "POST", "alice", []other{{url, "alice", true}, {url, "bob", false}}},
		{"no time named", says(429), "GET", "alice", []other{{url, "alice", false}}},
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
							t.Errorf("%q to %s was held back for %v; want held back %v, for what is left of 2s and a tenth at most", o.token, o.url, held, o.held)
						}
					})
				}
				wg.Wait()
			})
		})
	}
}

// A pause that is longer than a request may wait fails it at once, unsent.
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
		want := gcra.WaitError{Subject: "host:api.example.com", Policy: "Retry-After", Needed: time.Hour, Allowed: time.Minute}
		var got *gcra.WaitError
		if !errors.As(err, &got) || *got != want || p.tries() != 1 || body.closes() != 1 {
			t.Errorf("got %v after %d tries; want %v after 1", err, p.tries(), &want)
		}
		// After an hour the server is asked again.
		time.Sleep(time.Hour)
		if resp, err := tr.RoundTrip(request(t, "GET", url, nil)); err != nil || resp.StatusCode != 200 {
			t.Errorf("got %v, %v; want 200", resp, err)
		}
	})
}

// Those whose turn came in a pause do not all go at its end: the rate is kept.
func TestPauseKeepsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Time
		refused := 0
		base := roundTrip(func(*http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Now())
			if len(at) == 5 {
				refused++
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
		if len(at) != 101 || refused != 1 {
			t.Fatalf("got %d tries and %d refusals; want 101 and 1", len(at), refused)
		}
		for i := range at[1:] {
			gap := at[i+1].Sub(at[i])
			if gap < 100*time.Millisecond-tick {
				t.Errorf("try %d comes %v after the one before; want at least 100ms", i+2, gap)
			}
			if i+1 == 5 && gap < 5*time.Second {
				t.Errorf("the try after the refusal comes after %v; want at least 5s", gap)
			}
		}
	})
}

// Many goroutines on one Transport keep the limit in every window.
func TestConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answers: []func() *http.Response{ok}}
		var mu sync.Mutex
		events := 0
		tr := transport(t, httpclient.Config{Base: p, Store: gcra.NewMemory(), MaxWait: time.Hour,
			Observe: func(*http.Request, httpclient.Event) { mu.Lock(); events++; mu.Unlock() },
			Policies: []httpclient.Policy{
				{Name: "5s", Key: httpclient.ByHost, Limit: gcra.Limit{Count: 25, Per: 5 * time.Second, Burst: 1}},
				{Name: "minute", Key: httpclient.ByHost, Limit: gcra.PerMinute(300)},
			}})
		const callers, calls = 50, 10
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for j := range calls {
					resp, err := tr.RoundTrip(request(t, "PUT", url, strings.NewReader(fmt.Sprint(i, " ", j))))
					if err != nil || resp.StatusCode != 200 {
						t.Errorf("got %v, %v; want 200", resp, err)
					}
				}
			})
		}
		wg.Wait()
		if len(p.at) != callers*calls || events != callers*calls {
			t.Fatalf("got %d tries and %d events; want %d", len(p.at), events, callers*calls)
		}
		for i := 25; i < len(p.at); i++ {
			if d := p.at[i].Sub(p.at[i-25]); d < 5*time.Second-tick {
				t.Errorf("requests %d to %d go within %v; want 5s", i-25, i, d)
			}
		}
		slices.Sort(p.bodies)
		if n := len(slices.Compact(p.bodies)); n != callers*calls {
			t.Errorf("got %d different bodies; want %d", n, callers*calls)
		}
	})
}

// spy remembers everything that a store is told.
type spy struct {
	gcra.Store
	mu   sync.Mutex
	told []string
}

func (s *spy) Take(ctx context.Context, charges []gcra.Charge) (bool, error) {
	s.mu.Lock()
	for _, c := range charges {
		s.told = append(s.told, c.Subject+" "+c.Policy)
	}
	s.mu.Unlock()
	return s.Store.Take(ctx, charges)
}

// A credential is told to nobody: not to the store, its keys, or an error.
func TestCredentialIsASecret(t *testing.T) {
	client := redistest.Any(t)
	redis := redisstore.New(client)
	redis.Timeout = 20 * time.Second
	s := &spy{Store: redis}
	tr := transport(t, httpclient.Config{
		Base: &partner{answers: []func() *http.Response{says(429, "Retry-After: 3600")}}, Store: s, MaxWait: 100 * time.Millisecond,
		Policies: []httpclient.Policy{
			{Name: "a", Key: httpclient.ByCredential, Limit: gcra.PerMinute(2)},
			{Name: "b", Key: httpclient.ByHeader("X-Api-Key"), Limit: gcra.PerMinute(3)},
		},
	})
	var errs []string
	for range 4 {
		_, err := tr.RoundTrip(request(t, "GET", url, nil, "Authorization: Bearer hunter2", "X-Api-Key: hunter3"))
		errs = append(errs, fmt.Sprintf("%v %+v", err, err))
	}
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 2 {
		t.Fatalf("got keys %q, %v; want 2", keys, err)
	}
	for _, told := range slices.Concat(errs, s.told, keys) {
		if strings.Contains(told, "hunter") || strings.Contains(told, "Bearer") {
			t.Errorf("got %q; want no credential", told)
		}
	}
	if len(s.told) == 0 || !strings.HasPrefix(s.told[0], "credential:") {
		t.Errorf("the store was told %q; want a hash of the credential", s.told)
	}
}

func TestKeys(t *testing.T) {
	for _, tt := range []struct {
		name  string
		key   func(*http.Request) (string, error)
		url   string
		token string
		want  string
	}{
		{"host", httpclient.ByHost, "https://api.example.com/x", "", "host:api.example.com"},
		{"case", httpclient.ByHost, "https://API.Example.com", "", "host:api.example.com"},
		{"https's port", httpclient.ByHost, "https://api.example.com:443", "", "host:api.example.com"},
		{"http's port", httpclient.ByHost, "http://api.example.com:80", "", "host:api.example.com"},
		{"the other's port", httpclient.ByHost, "http://api.example.com:443", "", "host:api.example.com:443"},
		{"port", httpclient.ByHost, "https://api.example.com:8443", "", "host:api.example.com:8443"},
		{"IPv6", httpclient.ByHost, "http://[2001:DB8::1]/", "", "host:2001:db8::1"},
		{"IPv6 and port", httpclient.ByHost, "http://[2001:db8::1]:81/", "", "host:[2001:db8::1]:81"},
		{"credential", httpclient.ByCredential, url, "Bearer hunter2", "credential:%x"},
		{"no credential", httpclient.ByCredential, url, "", ""},
		{"header", httpclient.ByHeader("authorization"), url, "Bearer hunter2", "header:%x"},
		{"no header", httpclient.ByHeader("X-Api-Key"), url, "Bearer hunter2", ""},
	} {
		r := request(t, "GET", tt.url, nil)
		if tt.token != "" {
			r.Header.Set("Authorization", tt.token)
		}
		want := strings.Replace(tt.want, "%x", hunter2, 1)
		if got, err := tt.key(r); got != want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", tt.name, got, err, want)
		}
	}
}

// All mistakes are told at once.
func TestMistakes(t *testing.T) {
	_, err := httpclient.New(httpclient.Config{
		Store: (*gcra.Memory)(nil), MaxTries: -1, MaxWait: -time.Second,
		Policies: []httpclient.Policy{
			{},
			{Name: "a\n", Key: httpclient.ByHost, Limit: gcra.PerSecond(1)},
			{Name: strings.Repeat("x", 65), Key: httpclient.ByHost, Limit: gcra.PerSecond(1)},
			{Name: "b", Key: httpclient.ByHost, Limit: gcra.PerSecond(1), MaxDelay: -1},
			{Name: "b", Key: httpclient.ByHost, Limit: gcra.PerSecond(1)},
		},
	})
	for _, want := range []string{
		"Store is nil", "MaxTries is -1", "MaxWait is -1s", "policy number 1: Name is missing", "policy number 1: Key is nil",
		"policy number 1: Limit is", `Name is "a\n"`, "Name has 65", `policy "b": MaxDelay is -1ns`, `policy "b": Name is taken`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want it to say %q", err, want)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 10 {
		t.Errorf("got %d mistakes; want 10:\n%v", n, err)
	}
	if _, err := httpclient.New(httpclient.Config{Policies: []httpclient.Policy{{Key: httpclient.ByHost, Limit: gcra.PerSecond(1)}}}); err == nil {
		t.Error("policies without a store: got no error")
	}
	defer func() {
		if recover() == nil {
			t.Error("Must does not panic")
		}
	}()
	httpclient.Must(httpclient.New(httpclient.Config{MaxTries: -1}))
}

// The slice of policies stays the caller's.
func TestPoliciesAreCopied(t *testing.T) {
	policies := []httpclient.Policy{{Key: httpclient.ByHost, Limit: gcra.PerSecond(1)}}
	s := &spy{Store: gcra.NewMemory()}
	tr := transport(t, httpclient.Config{Base: &partner{answers: []func() *http.Response{ok}}, Store: s, Policies: policies})
	if policies[0].Name != "" {
		t.Errorf("the caller's policy is called %q now", policies[0].Name)
	}
	policies[0].Key = nil
	if _, err := tr.RoundTrip(request(t, "GET", url, nil)); err != nil || s.told[0] != "host:api.example.com default" {
		t.Errorf("got %v, told %q; want the policy default", err, s.told)
	}
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
		t.Errorf("Base was asked %d times; want once", closed)
	}
}
