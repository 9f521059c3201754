package middleware_test

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Responses share the text of numbers. A handler that adds to its fields changes no other
// response.
func TestResponsesKeepTheirNumbers(t *testing.T) {
	const burst, asked, callers = 1100, 200, 4
	limit := gcra.PerDay(burst)
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store.Store}, middleware.Policy{Name: "all", Key: byHeader, Limit: limit})
	var running sync.WaitGroup

	for caller := range callers {
		running.Go(func() {
			key := strconv.Itoa(caller)
			var all []http.Header
			for range asked {
				w := httptest.NewRecorder()
				r := get("/")
				r.Header.Set("X-Client", key)
				l.Allow(w, r)
				w.Header().Add("RateLimit-Remaining", "added")
				w.Header().Add("RateLimit-Reset", "added")
				all = append(all, w.Header())
			}

			for i, h := range all {
				full := time.Duration(i+1) * limit.Interval()
				remaining, reset := strconv.Itoa(burst-1-i), strconv.Itoa(int(math.Ceil(full.Seconds())))
				if !slices.Equal(h.Values("RateLimit-Remaining"), []string{remaining, "added"}) || !slices.Equal(h.Values("RateLimit-Reset"), []string{reset, "added"}) {
					t.Errorf("response %d of %s: got %v; want Remaining %s and Reset %s, each with what the handler added", i, key, h, remaining, reset)
				}
			}
		})
	}
	running.Wait()
}

func TestConfigurationAsText(t *testing.T) {
	for got, want := range map[string]string{
		fmt.Sprint(middleware.FailLocal, middleware.FailOpen, middleware.FailClosed, middleware.FailureMode(9)): "local open closed FailureMode(9)",
		fmt.Sprint(middleware.HeadersDraft6|middleware.HeadersDraft11, middleware.HeadersXRateLimit):            "draft6|draft11 x-ratelimit",
		fmt.Sprint(middleware.HeadersNone, middleware.Headers(0), middleware.Headers(1<<6)):                     "none draft6 Headers(0b1000000)",
	} {
		if got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
}
