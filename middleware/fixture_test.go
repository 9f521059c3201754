package middleware_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
)

var errDown = doubles.ErrDown

// newStore returns a store that can fail, and its clock.
func newStore() (*doubles.Store, *doubles.Clock) {
	s := doubles.NewStore()
	return s, &s.Clock
}

// unread is the Logger of a limiter with a mistake or a failing store.
var unread = slog.New(slog.DiscardHandler)

func key(s string) func(*http.Request) (string, error) {
	return func(*http.Request) (string, error) { return s, nil }
}

func keyFails(*http.Request) (string, error) { return "", errors.New("no key today") }
func keyPanics(r *http.Request) (string, error) {
	return r.Context().Value(missingKey{}).(string), nil
}

type missingKey struct{}

func limiter(t testing.TB, cfg middleware.Config, policies ...middleware.Policy) *middleware.Limiter {
	t.Helper()
	l, err := middleware.New(cfg, policies...)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return l
}

func get(target string) *http.Request { return httptest.NewRequest(http.MethodGet, target, nil) }

// left returns the units that a key has left.
func left(t testing.TB, s gcra.Store, subject, policy string, l gcra.Limit) int64 {
	t.Helper()
	r, err := gcra.Peek(t.Context(), s, gcra.Charge{Subject: subject, Policy: policy, Limit: l})
	if err != nil {
		t.Fatalf("peek at %s of %s: %v", policy, subject, err)
	}
	return r.Remaining
}

// allow sends a request through the limiter and returns the response.
func allow(l *middleware.Limiter, r *http.Request) (*http.Response, *middleware.Decision) {
	w := httptest.NewRecorder()
	r, ok := l.Allow(w, r)
	if ok {
		w.WriteHeader(http.StatusOK)
	}
	return w.Result(), middleware.FromContext(r.Context())
}
