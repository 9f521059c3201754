package middleware_test

import (
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
	"net/http"
	"testing"
)

type zrec struct{ h http.Header }

func (w *zrec) Header() http.Header         { return w.h }
func (w *zrec) WriteHeader(int)             {}
func (w *zrec) Write(b []byte) (int, error) { return len(b), nil }
func BenchmarkZAllow(b *testing.B) {
	l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()}, middleware.Policy{
		Name:  "client",
		Key:   func(r *http.Request) (string, error) { return r.Header["X-Client"][0], nil },
		Limit: gcra.Limit{Count: 1_000_000, Per: 1e9, Burst: 1_000_000_000},
	}))
	r, _ := http.NewRequest("GET", "/users/1", nil)
	r.Header.Set("X-Client", "user:1234")
	w := &zrec{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		l.Allow(w, r)
	}
}
