// Package smoke tests that the short examples limit.
package smoke

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Test serves what an example serves and uses its limits up: those of an
// address, of a login, and of a user, who has a bucket of his own.
func Test(t *testing.T, build func(gcra.Store) http.Handler) {
	const secret = "a secret of the test, 32 bytes or more"
	t.Setenv("JWT_SECRET", secret)
	now := time.Now() // stands still, so that nothing refills
	server := httptest.NewServer(build(&gcra.Memory{Now: func() time.Time { return now }}))
	defer server.Close()

	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Subject:   "alice",
		ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what, method, path, token string
		times, status             int
	}{
		{"a login", "POST", "/login", "", 5, http.StatusOK},
		{"the 6th login in a minute", "POST", "/login", "", 1, http.StatusTooManyRequests},
		{"the rest of the address's 10 a second", "GET", "/hello", "", 5, http.StatusOK},
		{"the 11th request in a second", "GET", "/hello", "", 1, http.StatusTooManyRequests},
		{"a made-up token", "GET", "/hello", token + "x", 1, http.StatusTooManyRequests},
		{"a user", "GET", "/hello", token, 10, http.StatusOK},
		{"the user's 11th in a second", "GET", "/hello", token, 1, http.StatusTooManyRequests},
	} {
		for i := range step.times {
			r, err := http.NewRequestWithContext(t.Context(), step.method, server.URL+step.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if step.token != "" {
				r.Header.Set("Authorization", "Bearer "+step.token)
			}
			w, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			w.Body.Close()
			if w.StatusCode != step.status {
				t.Errorf("%s, number %d: got %d; want %d", step.what, i+1, w.StatusCode, step.status)
			}
			if refused := step.status == http.StatusTooManyRequests; refused != (w.Header.Get("Retry-After") != "") {
				t.Errorf("%s: got Retry-After %q", step.what, w.Header.Get("Retry-After"))
			}
		}
	}
}
