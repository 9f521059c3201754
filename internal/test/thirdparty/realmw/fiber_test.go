package realmw

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// Recipe "Fiber and fasthttp".
func TestFiber(t *testing.T) {
	store := gcra.NewMemory()
	limit := func(c fiber.Ctx) error {
		subject, err := keyfunc.RemoteAddr(&http.Request{RemoteAddr: c.RequestCtx().RemoteAddr().String()})
		if err != nil {
			return err
		}

		result, err := gcra.Take(c.Context(), store, gcra.Charge{Subject: subject, Policy: "client", Limit: gcra.PerHour(2), Cost: 1})
		switch {
		case err != nil: // the store does not answer: let the request pass
		case !result.Allowed:
			wait := min(math.Ceil(result.RetryAfter.Seconds()), 2_147_483) // longer waits overflow timers of clients
			c.Set("Retry-After", strconv.Itoa(int(wait)))
			return c.SendStatus(fiber.StatusTooManyRequests)
		}

		return c.Next()
	}

	expectThirdDenied(t, limit)
	expectThirdDenied(t, adaptor.HTTPMiddleware(ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(2), Routes: []string{"GET /"}})))
}

func expectThirdDenied(t *testing.T, limit fiber.Handler) {
	t.Helper()
	app := fiber.New()
	app.Use(limit)
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello") })
	for i, want := range []int{200, 200, 429} {
		resp, err := app.Test(httptest.NewRequest("GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want || resp.Header.Get("Retry-After") != map[int]string{429: "1800"}[want] {
			t.Errorf("request %d: got %d, Retry-After %q; want %d", i+1, resp.StatusCode, resp.Header.Get("Retry-After"), want)
		}
	}
}
