package adapter

import (
	"net/http"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// Gate lets a request pass or answers it, and holds something until release is called: an *inflight.Gate
// holds a slot. The request that it returns takes the place of the one that it got.
type Gate interface {
	Allow(w http.ResponseWriter, r *http.Request) (_ *http.Request, release func(), ok bool)
}

// GateOf returns a Gate that lets pass what l allows, and holds nothing. It panics if l is nil.
func GateOf(l *middleware.Limiter) Gate { return limiter{middleware.Must(l, nil)} }

type limiter struct{ *middleware.Limiter }

func (l limiter) Allow(w http.ResponseWriter, r *http.Request) (*http.Request, func(), bool) {
	r, ok := l.Limiter.Allow(w, r)
	return r, func() {}, ok
}
