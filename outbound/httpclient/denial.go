package httpclient

import (
	"cmp"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/internal/retryafter"
)

const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// backoff returns the wait after so many denials without a Retry-After: minBackoff, doubled up to
// maxBackoff, and of that a random part between half and all, so that clients that were denied
// together do not return together.
func backoff(denials int) time.Duration {
	d := min(minBackoff<<min(denials-1, 5), maxBackoff)
	return d/2 + rand.N(d/2+1)
}

// Denial says whether a response denies its request.
type Denial struct {
	Denied bool

	// Wait is the time until the server may allow a request; 0 if it is not known.
	Wait time.Duration

	// Final says that no wait helps, as when an account has no money left: the request is not sent
	// again, and the denial slows down no other.
	Final bool
}

// readAnswer reads a response, also with the function of a Config.Denied.
func readAnswer(now time.Time, resp *http.Response, judge func(*http.Response, Denial) Denial) retryafter.Answer {
	a := retryafter.Read(now, resp.StatusCode, resp.Header)
	if judge == nil {
		return a
	}

	told := Denial{a.Denied, a.Wait, a.Never}
	d := judge(resp, told)
	if d == told {
		return a
	}

	if d.Denied = d.Denied || d.Final; d.Denied && !a.Denied {
		a = retryafter.Read(now, http.StatusTooManyRequests, resp.Header)
		d.Wait = cmp.Or(d.Wait, a.Wait)
	}
	a.Denied, a.Later, a.Down, a.Never = d.Denied, d.Denied, a.Down && !d.Denied, d.Final
	a.Wait = 0
	if a.Denied {
		a.Wait = min(max(d.Wait, 0), retryafter.Max)
	}
	return a
}

// replayable reports whether a request may be sent again: its body can be read again, and it is
// idempotent or Config.Replay allows it. A denied request should have had no effect, but a proxy may
// deny one that a server behind it has begun.
func (t *Transport) replayable(r *http.Request) bool {
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}

	if t.cfg.Replay != nil && t.cfg.Replay(r) {
		return true
	}

	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}

	// As in net/http, the presence of the header is enough.
	_, named := r.Header["Idempotency-Key"]
	_, old := r.Header["X-Idempotency-Key"]
	return named || old
}

// replay returns a copy of the request with a new body.
func replay(r *http.Request) (clone *http.Request, err error) {
	clone = r.Clone(r.Context())
	if r.GetBody != nil && r.Body != nil && r.Body != http.NoBody {
		clone.Body, err = r.GetBody()
	}
	return clone, err
}

// The most that is read of a body to keep its connection.
const (
	maxDrain     = 64 << 10
	drainTimeout = 500 * time.Millisecond
)

// drain reads the body of a denial, so that its connection can be reused, and closes it. It takes no longer than most.
func drain(body io.ReadCloser, most time.Duration) {
	if body == nil {
		return // from a Base made for a test
	}
	timer := time.AfterFunc(min(drainTimeout, most), func() { _ = body.Close() })
	// An error ends the use of the connection; the response is not needed.
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	if timer.Stop() {
		_ = body.Close()
	}
}
