package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// limit is the server's: 4,500 an hour, 1.25 a second, and as many at once.
var limit = gcra.PerHour(4500)

// bucket is a store on the virtual clock.
type bucket struct {
	*gcra.Memory
	now    time.Time
	frozen bool // the clock is stopped, so the bucket never refills
}

// newBucket returns a bucket with left units.
func newBucket(left int64, frozen bool) (*bucket, error) {
	b := &bucket{now: time.Unix(origin, 0), frozen: frozen}
	b.Memory = gcra.NewMemory(gcra.MemoryConfig{Capacity: 1, Now: func() time.Time { return b.now }})
	_, err := gcra.Take(context.Background(), b, gcra.Charge{Subject: subject, Policy: policyName, Limit: limit, Cost: limit.Count - left, Peek: left == limit.Count})
	return b, err
}

// server is our middleware on a bucket.
type server struct {
	bucket        *bucket
	limiter       *middleware.Limiter
	request       *http.Request
	remainingOnly bool // sends RateLimit-Remaining alone
}

const (
	subject    = "client"
	policyName = "hourly"
)

func newServer(left int64, frozen, sparse bool) (*server, error) {
	key := func(*http.Request) (string, error) { return subject, nil }
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://api.example/", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	b, err := newBucket(left, frozen)
	if err != nil {
		return nil, fmt.Errorf("bucket: %w", err)
	}
	limiter, err := middleware.New(middleware.Config{Store: b}, middleware.Policy{Name: policyName, Key: key, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("limiter: %w", err)
	}
	return &server{bucket: b, limiter: limiter, request: request, remainingOnly: sparse}, nil
}

// answer is the response for a client.
type answer struct {
	denied    bool
	remaining int64
	status    int
	header    http.Header
}

func (s *server) handle(now time.Time) (answer, error) {
	if !s.bucket.frozen {
		s.bucket.now = now
	}

	w := &recorder{header: http.Header{}, status: http.StatusOK}
	if _, ok := s.limiter.Allow(w, s.request); ok != (w.status == http.StatusOK) {
		return answer{}, fmt.Errorf("got %d; want 200 or a denial", w.status)
	}
	if w.status != http.StatusOK && w.status != http.StatusTooManyRequests {
		return answer{}, fmt.Errorf("got %d; want 200 or 429", w.status)
	}

	left := w.header.Get("RateLimit-Remaining")
	n, err := strconv.ParseInt(left, 10, 64)
	if err != nil {
		return answer{}, fmt.Errorf("remaining: %w", err)
	}

	a := answer{denied: w.status != http.StatusOK, remaining: n, status: w.status, header: w.header}
	if s.remainingOnly {
		a.header = http.Header{}
		a.header.Set("RateLimit-Remaining", left)
	}
	return a, nil
}

// recorder keeps status and header of a response.
type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }
