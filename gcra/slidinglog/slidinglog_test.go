package slidinglog_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/slidinglog"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// Invalid limits and settings are errors with the value in them.
func TestInvalid(t *testing.T) {
	r := newStore(redistest.Any(t))
	for _, s := range []gcra.Store{r, slidinglog.NewMemory()} {
		_, err := gcra.Take(t.Context(), s, gcra.Charge{Policy: "p", Limit: gcra.PerSecond(5).WithBurst(4), Cost: 1})
		if err == nil || !strings.Contains(err.Error(), "burst is 4; want 0 or 5") {
			t.Errorf("%T, a burst of 4 of 5: got %v; want an error with it", s, err)
		}
		if _, err := gcra.Take(t.Context(), s, gcra.Charge{Policy: "p", Limit: gcra.PerSecond(5).WithBurst(5), Cost: 1}); err != nil {
			t.Errorf("%T, a burst of 5 of 5: got %v", s, err)
		}
	}
	r.Timeout = -time.Second
	if _, err := gcra.Take(t.Context(), r, hourly("p", 5, 1)); err == nil || !strings.Contains(err.Error(), "timeout is -1s; want 0 (50ms) or more") {
		t.Errorf("a negative Timeout: got %v; want an error with it", err)
	}
	r.Timeout = patience
	r.Prefix = "{a}:"
	if _, err := gcra.Take(t.Context(), r, hourly("p", 5, 1)); err == nil || !strings.Contains(err.Error(), `prefix is "{a}:"`) {
		t.Errorf("prefix {a}: got %v; want an error with it", err)
	}
}

// The stores work under the middleware.
func TestMiddleware(t *testing.T) {
	for name, store := range map[string]gcra.Store{"Redis": newStore(redistest.Any(t)), "Memory": slidinglog.NewMemory()} {
		handler := ratelimit.New(ratelimit.Config{Store: store},
			ratelimit.Policy{Name: "short", Key: keyfunc.Const("partner"), Limit: gcra.Limit{Count: 3, Per: time.Minute}},
			ratelimit.Policy{Name: "long", Key: keyfunc.Const("partner"), Limit: gcra.PerHour(300)},
		)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		for i, want := range []int{204, 204, 204, 429, 429} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			left := []string{"2", "1", "0", "0", "0"}[i]
			if got := w.Header().Get("RateLimit-Remaining"); w.Code != want || got != left {
				t.Errorf("%s, request %d: got %d with %s remaining; want %d with %s", name, i, w.Code, got, want, left)
			}
			if retry := w.Header().Get("Retry-After"); want == 429 && retry != "60" && retry != "59" {
				t.Errorf("%s, request %d: Retry-After is %q; want 60, when the first leaves the window", name, i, retry)
			}
		}
	}
}
