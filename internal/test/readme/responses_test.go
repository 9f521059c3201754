package readme

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// The HTTP blocks of a page are the last responses to so many requests, in the
// order of the page.
func TestResponses(t *testing.T) {
	type sent struct {
		requests int
		cfg      ratelimit.Config
	}

	want := map[string][]sent{
		"docs/responses.md": {
			{1, ratelimit.Config{}},
			{1, ratelimit.Config{Headers: middleware.HeadersDraft11}},
			{1, ratelimit.Config{Headers: middleware.HeadersXRateLimit}},
			{11, ratelimit.Config{}},
		},
		"docs/failure.md": {{1, ratelimit.Config{Store: doubles.Down{}}}},
	}

	for _, page := range pages {
		shown := blocks(t, page, "http")
		if len(shown) != len(want[page]) {
			t.Fatalf("%s has %d HTTP blocks; the table has %d", page, len(shown), len(want[page]))
		}

		for i, b := range shown {
			if got := response(want[page][i].requests, want[page][i].cfg); got != b.text {
				t.Errorf("%s: got\n%s\nthe page has\n%s", b, got, b.text)
			}
		}
	}
}

// response sends n requests to a server with two policies and prints the last
// response.
func response(n int, cfg ratelimit.Config) string {
	mode := middleware.FailClosed
	cfg.Logger = slog.New(slog.DiscardHandler)
	if cfg.Store == nil {
		now := time.Now() // stands still, so that nothing refills
		cfg.Store = gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})
	}

	h := ratelimit.New(cfg,
		ratelimit.Policy{Name: "burst", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(10), OnFailure: mode},
		ratelimit.Policy{Name: "daily", Key: keyfunc.RemoteAddr, Limit: gcra.PerDay(10_000), OnFailure: mode},
	)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	var w *httptest.ResponseRecorder
	for range n {
		w = httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/hello", nil))
	}

	var out strings.Builder
	fmt.Fprintln(&out, "HTTP/1.1", w.Code, http.StatusText(w.Code))
	for _, name := range slices.Sorted(maps.Keys(w.Header())) {
		fmt.Fprintf(&out, "%s: %s\n", name, w.Header().Get(name))
	}
	if w.Body.Len() > 0 {
		fmt.Fprintf(&out, "\n%s", w.Body)
	}
	return out.String()
}

// The page lists the fields that scripts may read for each form: those that the limiter
// writes, without the ones that every script can read.
func TestExposedHeaders(t *testing.T) {
	page := strings.ToLower(read(t, "docs/responses.md"))
	for name, headers := range map[string]middleware.Headers{
		"HeadersDraft6": middleware.HeadersDraft6, "HeadersDraft11": middleware.HeadersDraft11,
		"HeadersXRateLimit": middleware.HeadersXRateLimit, "HeadersNone": middleware.HeadersNone,
	} {
		written := map[string]bool{}
		for _, requests := range []int{1, 11} {
			for line := range strings.Lines(response(requests, ratelimit.Config{Headers: headers})) {
				field, _, ok := strings.Cut(strings.ToLower(line), ": ")
				if ok && (strings.Contains(field, "ratelimit") || field == "retry-after") {
					written[field] = true
				}
			}
		}

		_, row, found := strings.Cut(page, "| `"+strings.ToLower(name)+"` | `retry-after")
		row, _, _ = strings.Cut("retry-after"+row, "`")
		listed := strings.Split(row, ", ")
		slices.Sort(listed)

		if want := slices.Sorted(maps.Keys(written)); !found || !slices.Equal(listed, want) {
			t.Errorf("%s: the page lists %q; the limiter writes %q", name, listed, want)
		}
	}
}
