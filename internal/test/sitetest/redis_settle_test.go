package sitetest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// Two servers on one Redis, set up by its URL with all defaults: what a handler settles
// after the response is paid by the next requests to both, and no denial forgets it.
func TestSettleInRedis(t *testing.T) {
	url := "redis://" + redistest.Any(t).Options().Addr
	name := "settle-in-redis-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	var servers [2]http.Handler
	for i := range servers {
		store, err := redisstore.Open(url, redisstore.Config{Timeout: 10 * time.Second}) // a busy machine
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		estimate := func(*http.Request) int64 { return 10 }
		limit := ratelimit.New(ratelimit.Config{Store: store},
			ratelimit.Policy{Name: name, Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(60), Cost: estimate, MaxDebt: 40},
			ratelimit.Policy{Name: name + "-month", Key: keyfunc.RemoteAddr, Limit: gcra.Quota(1000, gcra.Monthly), Cost: estimate, MaxDebt: 40})

		servers[i] = limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cost, err := strconv.ParseInt(r.Header.Get("Cost"), 10, 64)
			if err != nil {
				t.Error(err)
			}
			fmt.Fprint(w, "done")
			if err := ratelimit.FromContext(r.Context()).Settle(r.Context(), cost, name, name+"-month"); err != nil {
				t.Errorf("settle %d: %v", cost, err)
			}
		}))
	}

	start := time.Now()
	for i, step := range []struct {
		server, cost, status, remaining int
		retryAfter                      time.Duration // until 10 units are left
	}{
		{0, 2, http.StatusOK, 50, 0},
		{1, 30, http.StatusOK, 48, 0},
		{0, 60, http.StatusOK, 18, 0}, // 32 units of debt
		{0, 0, http.StatusTooManyRequests, 0, 42 * time.Minute},
		{0, 0, http.StatusTooManyRequests, 0, 42 * time.Minute}, // a cached denial
		{1, 0, http.StatusTooManyRequests, 0, 42 * time.Minute},
		{1, 0, http.StatusTooManyRequests, 0, 42 * time.Minute},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Cost", strconv.Itoa(step.cost))
		w := httptest.NewRecorder()
		servers[step.server].ServeHTTP(w, r)
		retry, _ := strconv.Atoi(w.Header().Get("Retry-After"))
		after := time.Duration(retry) * time.Second
		slack := time.Since(start) + time.Second
		if w.Code != step.status || w.Header().Get("RateLimit-Remaining") != strconv.Itoa(step.remaining) || after > step.retryAfter+time.Second || after < step.retryAfter-slack {
			t.Errorf("step %d: got %d, %s left, retry after %v; want %d, %d, %v", i, w.Code, w.Header().Get("RateLimit-Remaining"), after, step.status, step.remaining, step.retryAfter)
		}
	}
}
