package middleware_test

import (
	"fmt"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// Each response owns its values: a proxy in the same process may append to them, or edit them in place.
func TestResponsesOwnTheirValues(t *testing.T) {
	for _, other := range []middleware.Headers{middleware.HeadersXRateLimit, middleware.HeadersDraft11} {
		headers := middleware.HeadersDraft6 | other
		var limiters [2]*middleware.Limiter
		for i := range limiters {
			store, _ := newStore()
			limiters[i] = limiter(t, middleware.Config{Store: store, Headers: headers}, middleware.Policy{Name: "p", Key: key("k"), Limit: five})
		}

		for i := range 7 { // two are denied
			edited, want := httptest.NewRecorder(), httptest.NewRecorder()
			limiters[0].Allow(edited, get("/"))
			limiters[1].Allow(want, get("/"))
			for _, values := range edited.Header() {
				_ = append(values, "appended")
			}
			if got := edited.Header(); !reflect.DeepEqual(got, want.Header()) {
				t.Errorf("response %d with %v: got %v; want %v", i, headers, got, want.Header())
			}
			for _, values := range edited.Header() {
				values[0] = "edited"
			}
		}
	}
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
