package httpclient_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
)

// A denied request is sent again after Retry-After if it is safe to repeat; otherwise the caller gets the denial.
func TestDenials(t *testing.T) {
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
		first  int      // status of the first response; the second is 200
		fields []string // of the first response
		want   int      // status that the caller gets
		least  time.Duration
		most   time.Duration
		reason httpclient.Reason
	}{
		// Seconds, and up to a tenth more.
		{"429", "GET", none, nil, 429, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},
		{"503", "GET", none, nil, 503, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},

		// A date, by the server's clock.
		{"date", "GET", none, nil, 429, dated(3 * s), 200, 3 * s, 3300 * time.Millisecond, httpclient.Answered},
		{"date, 503", "GET", none, nil, 503, dated(3 * s), 200, 3 * s, 3300 * time.Millisecond, httpclient.Answered},

		// Of two limits that are used up, the longer reset counts.
		{"two resets", "GET", none, nil, 429, []string{`RateLimit: "hour";r=0;t=3, "burst";r=0;t=1`}, 200, 3 * s, 3300 * time.Millisecond, httpclient.Answered},

		// Without a time in the future: exponential backoff.
		{"429 alone", "GET", none, nil, 429, nil, 200, s / 4, s / 2, httpclient.Answered},
		{"now", "GET", none, nil, 429, []string{"Retry-After: 0"}, 200, s / 4, s / 2, httpclient.Answered},

		// As GitHub denies.
		{"403", "GET", none, nil, 403, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},

		// No denials.
		{"503 alone", "GET", none, nil, 503, nil, 503, 0, 0, httpclient.Answered},
		{"500", "GET", none, nil, 500, []string{"Retry-After: 2"}, 500, 0, 0, httpclient.Answered},
		{"301", "GET", none, nil, 301, []string{"Retry-After: 2"}, 301, 0, 0, httpclient.Answered},

		// Longer than MaxWait.
		{"above MaxWait", "GET", none, nil, 429, []string{"Retry-After: 61"}, 429, 0, 0, httpclient.TooLong},
		{"years", "GET", none, nil, 503, []string{"Retry-After: 99999999999999999999"}, 503, 0, 0, httpclient.TooLong},

		// Idempotent methods, and others with an idempotency key.
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

		// Methods that Replay allows, here all of a partner whose 429 promises that nothing was done.
		{"POST that Replay allows", "POST", buffer, []string{"X-Replay: yes"}, 429, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},
		{"PATCH that Replay allows", "PATCH", buffer, []string{"X-Replay: yes"}, 429, []string{"Retry-After: 2"}, 200, 2 * s, 2200 * time.Millisecond, httpclient.Answered},
		{"POST of a stream that Replay allows", "POST", stream, []string{"X-Replay: yes"}, 429, nil, 429, 0, 0, httpclient.NotReplayable},

		// A body that cannot be read again.
		{"PUT of a stream", "PUT", stream, nil, 429, []string{"Retry-After: 2"}, 429, 0, 0, httpclient.NotReplayable},
		{"POST of a stream with a key", "POST", stream, []string{"Idempotency-Key: 7"}, 429, nil, 429, 0, 0, httpclient.NotReplayable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{answers: []func() *http.Response{says(tt.first, tt.fields...), ok}}
				var event httpclient.Event
				tr := transport(t, httpclient.Config{Base: p, Observe: func(_ *http.Request, e httpclient.Event) { event = e },
					Replay: func(r *http.Request) bool { return r.Header.Get("X-Replay") != "" }})
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

// If the server denies every try, the caller gets the last denial, after MaxTries or when the next
// try would begin after MaxWait.
func TestAllTriesDenied(t *testing.T) {
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
		// 0.5, 1, 2, 4, 8, 10, 10 s: of each between half and all.
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

// If Retry-After is beyond the context's deadline, the caller gets the denial at once.
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

// Each try sends the same bytes from its own reader.
func TestBodyReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := make([]byte, 1<<20)
		for i := range body {
			body[i] = byte(i * i >> 3)
		}

		p := &partner{answers: []func() *http.Response{later, says(503, "Retry-After: 1"), says(429), ok}}
		r := request(t, "PUT", url, bytes.NewReader(body))
		first, getBody := r.Body, r.GetBody
		var copies []*watched
		r.GetBody = func() (io.ReadCloser, error) {
			b, err := getBody()
			w := &watched{Reader: b}
			copies = append(copies, w)
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

		if len(copies) != 3 {
			t.Errorf("GetBody was called %d times; want 3", len(copies))
		}
		for i, w := range copies {
			if w.closes() != 1 {
				t.Errorf("body of try %d was closed %d times; want once", i+2, w.closes())
			}
		}

		if r.Body != first {
			t.Error("the request's Body was replaced")
		}
	})
}

// If GetBody fails, RoundTrip returns its error and closes the denial.
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

// RoundTrip does not change the request, and a replay has its own copy of the header.
func TestRequestUnchanged(t *testing.T) {
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
