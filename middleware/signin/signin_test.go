package signin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/signin"
)

func basic(r *http.Request) (string, error) { name, _, _ := r.BasicAuth(); return name, nil }

// try, in a bubble, sends attempts of alice until one is denied, at most 20, and returns how many were not.
func try(h http.Handler) (passed int) {
	for ; passed < 20; passed++ {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.SetBasicAuth("alice", "")
		w := httptest.NewRecorder()
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(w, r)
		}()
		synctest.Wait() // until it is given back
		if w.Code == http.StatusTooManyRequests {
			return passed
		}
	}
	return passed
}

// Only what is known not to be a wrong password is given back.
func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		check func() signin.Outcome
		want  int
	}{
		"wrong":   {func() signin.Outcome { return signin.Wrong }, 5},
		"unknown": {func() signin.Outcome { return 99 }, 5},
		"panic":   {func() signin.Outcome { panic("check") }, 5},
		"right":   {func() signin.Outcome { return signin.Right }, 10}, // in a second
		"failed":  {func() signin.Outcome { return signin.Failed }, 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newGuard(t, middleware.Config{Store: newSite(t).memory()}, basic).Handler(func(http.ResponseWriter, *http.Request) signin.Outcome { return c.check() })
			if got := try(h); got != c.want {
				t.Errorf("%s: %d attempts passed; want %d", name, got, c.want)
			}
		})
	}
}

// A client that has gone makes a check fail, and gets nothing back.
func TestHungUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := newGuard(t, middleware.Config{Store: newSite(t).memory()}, basic)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if got := try(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r, ok := guard.Limiter().Allow(w, r.WithContext(gone)); ok {
				guard.Settle(r.Context(), signin.Failed)
			}
		})); got != 5 {
			t.Errorf("%d attempts passed; want 5", got)
		}
	})
}

// A malformed request is charged to its client, and to no account. Deny writes denials, but not the 400.
func TestMalformed(t *testing.T) {
	s := newSite(t)
	deny := func(w http.ResponseWriter, _ *http.Request, d *middleware.Decision) {
		http.Error(w, "denied", d.Status())
	}
	h := newGuard(t, middleware.Config{Store: s.memory(), Deny: deny, Headers: middleware.HeadersDraft11}, func(r *http.Request) (string, error) {
		if _, _, ok := r.BasicAuth(); !ok {
			return "", signin.MalformedError("want credentials")
		}
		return basic(r)
	}).Handler(func(http.ResponseWriter, *http.Request) signin.Outcome { return signin.Wrong })

	for i := range 11 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		want := `400 "" {"type":"about:blank","title":"Bad Request","status":400,"detail":"want credentials"}`
		if i == 10 {
			want = `429 "1" denied`
		}
		limit := w.Header().Get("RateLimit")
		if got := fmt.Sprintf("%d %q %s", w.Code, w.Header().Get("Retry-After"), strings.TrimSpace(w.Body.String())); got != want || limit != "" {
			t.Errorf("request %d: got %s, the field %q; want %s, and none", i+1, got, limit, want)
		}
	}
	s.pass(time.Second)
	synctest.Test(t, func(t *testing.T) {
		if got := try(h); got != 5 {
			t.Errorf("%d attempts of alice passed; want 5", got)
		}
	})
}

// What the function for the account does not read, the application reads as it arrives. The
// policies can be changed.
func TestEveryRequest(t *testing.T) {
	guard := newGuard(t, middleware.Config{Store: newSite(t).memory()}, basic)
	policies := guard.Limiter().Policies()
	policies[0].Limit = gcra.PerMinute(1).WithBurst(2)
	if err := guard.Limiter().Reload(policies...); err != nil {
		t.Fatal(err)
	}
	h := guard.Handler(func(w http.ResponseWriter, r *http.Request) signin.Outcome {
		_, _ = io.Copy(w, r.Body)
		return signin.Wrong
	})
	large := strings.Repeat("a", 1<<20)
	for range 5 { // without an account
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/", strings.NewReader(large))); w.Body.String() != large {
			t.Errorf("got %d, %d bytes; want all", w.Code, w.Body.Len())
		}
	}
	synctest.Test(t, func(t *testing.T) {
		if got := try(h); got != 2 {
			t.Errorf("%d attempts passed; want 2", got)
		}
	})
}

// failing is a store whose refunds wait, and fail.
type failing struct{ *gcra.Memory }

func (f *failing) Refund(context.Context, []gcra.Charge) error {
	time.Sleep(time.Hour)
	return errors.New("away")
}

// A right request does not wait until it is given back. What is not given back is logged.
func TestUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log diagtest.Text
		start := time.Now()
		try(newGuard(t, middleware.Config{Store: &failing{gcra.NewMemory()}, Logger: log.Logger()}, basic).Handler(func(http.ResponseWriter, *http.Request) signin.Outcome { return signin.Right }))
		if waited := time.Since(start); waited != 0 {
			t.Errorf("the requests waited %v; want 0", waited)
		}
		time.Sleep(2 * time.Hour)
		newGuard(t, middleware.Config{Store: &failing{gcra.NewMemory()}, Logger: log.Logger()}, basic).Settle(t.Context(), signin.Right)
		for _, want := range []string{"away", "has not passed the Guard's Limiter"} {
			if lines := log.Lines(want); len(lines) != 1 || !strings.Contains(lines[0], "signin-unsettled") {
				t.Errorf("got %v; want a line about %s", lines, want)
			}
		}
	})
}

// A body that does not arrive ends with a 400, and the connection with it.
func TestSlowBody(t *testing.T) {
	for name, build := range frameworks {
		synctest.Test(t, func(t *testing.T) {
			conn := doubles.Dial(t, &http.Server{Handler: build(newGuard(t, middleware.Config{Store: gcra.NewMemory()}, signin.JSON("username")), nil)})
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			fmt.Fprint(conn, "POST /login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
			if answer, err := io.ReadAll(conn); !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || err != nil {
				t.Errorf("%s: got %s, %v; want 400, and the end", name, answer, err)
			}
		})
	}
}
