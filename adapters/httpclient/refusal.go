package httpclient

import (
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/retryafter"
)

// refusal tells whether the server has refused to serve a request now, and how
// long it asks to be left alone; 0 when it does not say.
//
// A 429 is one with or without Retry-After. A 503 is one with it: else it is a
// failure like a 500, and the caller's to judge.
func refusal(resp *http.Response) (wait time.Duration, refused bool) {
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		wait, _ = retryafter.Parse(resp.Header, time.Now())
		return wait, true
	case http.StatusServiceUnavailable:
		return retryafter.Parse(resp.Header, time.Now())
	}
	return 0, false
}

const (
	firstBackoff = 500 * time.Millisecond
	mostBackoff  = 10 * time.Second
)

// backoff is how long to wait after so many refusals that did not say: half a
// second, doubled each time up to ten seconds, and of that a random part from
// the half to the whole, so that those who were refused together do not come
// back together.
func backoff(refusals int) time.Duration {
	d := mostBackoff
	if doublings := refusals - 1; doublings < 5 {
		d = min(d, firstBackoff<<doublings)
	}
	return d/2 + rand.N(d/2+1)
}

// replayable tells whether the request may be sent again: it does no more when
// it is served twice, and its body can be had again. A refusal should mean that
// nothing was done, but who refuses may stand behind somebody who has begun.
func replayable(r *http.Request) bool {
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	// As net/http has it, the header's presence is the promise.
	_, ok := r.Header["Idempotency-Key"]
	if !ok {
		_, ok = r.Header["X-Idempotency-Key"]
	}
	return ok
}

// again is the request with a body of its own.
func again(r *http.Request) (*http.Request, error) {
	clone := r.Clone(r.Context())
	if r.GetBody == nil || r.Body == nil || r.Body == http.NoBody {
		return clone, nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	clone.Body = body
	return clone, nil
}

const (
	drainMost = 64 << 10
	drainFor  = 500 * time.Millisecond
)

// discard reads what is left of a refusal, so that its connection can be used
// again, and closes it. One that is large or slow is not worth a connection.
func discard(body io.ReadCloser) {
	if body == nil {
		return // as a Base made for a test has it
	}
	patience := time.AfterFunc(drainFor, func() { _ = body.Close() })
	// Any error ends the connection's use, and the answer is not needed.
	_, _ = io.CopyN(io.Discard, body, drainMost)
	if patience.Stop() {
		_ = body.Close()
	}
}
