package httpclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/parallel"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
)

func TestMain(m *testing.M) {
	parallel.AtMost(16) // they wait for limits
	os.Exit(m.Run())
}

// roundTrip is a server without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer returns a response with a body and header fields "Name: value".
func answer(status int, body io.ReadCloser, fields ...string) *http.Response {
	h := http.Header{}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		h.Add(name, value)
	}
	return &http.Response{StatusCode: status, Header: h, Body: body, ContentLength: -1}
}

// watched is a body that counts how often it is closed.
type watched struct {
	io.Reader
	mu     sync.Mutex
	closed int
}

func watch(text string) *watched { return &watched{Reader: strings.NewReader(text)} }

func (w *watched) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed++
	return nil
}

func (w *watched) closes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// partner is a server without a network that gives a list of answers, then repeats the last, and
// records the time and body of each try.
type partner struct {
	answers []func() *http.Response

	mu     sync.Mutex
	at     []time.Time
	bodies []string
	given  []*watched // bodies of its answers
}

func (p *partner) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	n := len(p.at)
	p.at = append(p.at, time.Now())
	p.bodies = append(p.bodies, string(body))
	resp := p.answers[min(n, len(p.answers)-1)]()
	resp.Request = r
	w := watch("answer " + http.StatusText(resp.StatusCode))
	p.given = append(p.given, w)
	resp.Body = w
	return resp, nil
}

func (p *partner) tries() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.at)
}

// says returns an answer of a partner.
func says(status int, fields ...string) func() *http.Response {
	return func() *http.Response { return answer(status, nil, fields...) }
}

var (
	ok    = says(http.StatusOK)
	later = says(http.StatusTooManyRequests, "Retry-After: 2")
)

// transport returns New(cfg).
func transport(t *testing.T, cfg httpclient.Config) *httpclient.Transport {
	t.Helper()
	tr, err := httpclient.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// request returns a request with header fields "Name: value".
func request(t *testing.T, method, url string, body io.Reader, fields ...string) *http.Request {
	t.Helper()
	return requestIn(t.Context(), t, method, url, body, fields...)
}

func requestIn(ctx context.Context, t *testing.T, method, url string, body io.Reader, fields ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// text reads and closes the body.
func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return string(b)
}

// tick is more than the rounding of a store.
const tick = time.Microsecond

// between fails the test unless lo <= got <= hi.
func between(t *testing.T, what string, got, lo, hi time.Duration) {
	t.Helper()
	if got < lo || got > hi {
		t.Errorf("%s: got %v; want %v to %v", what, got, lo, hi)
	}
}

var errStore = errors.New("the store fails")

// failingStore is a store that always fails.
type failingStore struct{}

func (failingStore) Take(context.Context, []gcra.Charge) (bool, error) { return false, errStore }
func (failingStore) Refund(context.Context, []gcra.Charge) error       { return errStore }
