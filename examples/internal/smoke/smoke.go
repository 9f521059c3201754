// Package smoke tests that the short examples limit.
package smoke

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
)

// Test serves what an example serves and uses its limits up: an
// address's, a login's, and a user's, who has a bucket of his own.
func Test(t *testing.T, build func(gcra.Store) http.Handler) {
	token := Token(t, "alice")
	now := time.Now() // stands still, so that nothing refills
	server := httptest.NewServer(build(gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})))
	defer server.Close()

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
			if denied := step.status == http.StatusTooManyRequests; denied != (w.Header.Get("Retry-After") != "") {
				t.Errorf("%s: got Retry-After %q", step.what, w.Header.Get("Retry-After"))
			}
		}
	}
}

// Token sets the secret of an example that is built after it, and returns a token of a user.
func Token(t *testing.T, user string) string {
	t.Helper()
	const secret = "a secret of the test, 32 bytes or more"
	t.Setenv("JWT_SECRET", secret)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Subject:   user,
		ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// child makes a test binary the example itself.
const child = "SMOKE_TEST_CHILD"

// Main runs the example where [Start] asks for it, and otherwise the tests.
func Main(m *testing.M, main func()) {
	if os.Getenv(child) != "" {
		main()
		return
	}
	os.Exit(diagtest.Quiet(m).Run())
}

// Start starts the example and checks that it says where limits are kept, and no
// password. It need not listen: its port may be taken.
func Start(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	for url, want := range map[string]string{
		"":                                   "limits are kept in this process; REDIS_URL shares them",
		"redis://user:hunter2@127.0.0.1:1/0": "limits are kept in this process until Redis works: redisstore: redis at 127.0.0.1:1 does not answer",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // or it would be read from for ever
		defer cancel()
		cmd := exec.CommandContext(ctx, exe)
		cmd.Env = append(os.Environ(), child+"=1", "REDIS_URL="+url)
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}

		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}

		said := false
		for lines := bufio.NewScanner(stderr); !said && lines.Scan(); {
			said = strings.Contains(lines.Text(), want)
			if strings.Contains(lines.Text(), "hunter2") {
				t.Errorf("got %q; want no password", lines.Text())
			}
		}

		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if !said {
			t.Errorf("REDIS_URL=%s: got no line %q", url, want)
		}
	}
}
