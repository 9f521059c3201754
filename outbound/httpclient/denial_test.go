package httpclient

import (
	"math"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// stuck is a body that blocks until it is closed.
type stuck struct {
	closed chan struct{}
	closes int
}

func (s *stuck) Read([]byte) (int, error) {
	<-s.closed
	return 0, net.ErrClosed
}

func (s *stuck) Close() error {
	if s.closes++; s.closes == 1 {
		close(s.closed)
	}
	return nil
}

// A body that blocks is closed once, after drainTimeout.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{closed: make(chan struct{})}
		begin := time.Now()
		drain(s, time.Minute)
		if took := time.Since(begin); s.closes != 1 || took != drainTimeout {
			t.Errorf("closed %d times, after %v; want once after %v", s.closes, took, drainTimeout)
		}
	})
}

// Nor does such a body delay the next try beyond MaxWait.
func TestDrainWithinMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxWait = 550 * time.Millisecond
		began := time.Now()
		tr := Must(New(Config{MaxWait: maxWait, Base: roundTripFunc(func(*http.Request) (*http.Response, error) {
			if after := time.Since(began); after > maxWait {
				t.Errorf("a try began after %v; want at most %v", after, maxWait)
			}
			return &http.Response{StatusCode: http.StatusTooManyRequests, Body: &stuck{closed: make(chan struct{})}}, nil
		})}))

		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.example.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
	})
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The backoff doubles up to maxBackoff, and its random part is at most half of it.
func TestBackoff(t *testing.T) {
	const ms = time.Millisecond
	for i, most := range []time.Duration{500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 10_000 * ms, 10_000 * ms} {
		for range 1000 {
			if got := backoff(i + 1); got < most/2 || got > most {
				t.Fatalf("after %d denials: got %v; want %v to %v", i+1, got, most/2, most)
			}
		}
	}
	if got := backoff(math.MaxInt); got < maxBackoff/2 || got > maxBackoff {
		t.Errorf("after very many denials: got %v; want up to %v", got, maxBackoff)
	}
}
