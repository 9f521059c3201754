package sitetest_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// A server with a rate and a monthly quota in Redis, set up by a URL with all defaults: a
// client gets its quota, and then waits until the month ends by Redis' clock.
func TestQuotaInRedis(t *testing.T) {
	server := redistest.Any(t)
	store, err := redisstore.Open("redis://"+server.Options().Addr, redisstore.Config{Prefix: "quota-in-redis:", Timeout: 10 * time.Second}) // a busy machine
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	calendar := gcra.Monthly.From(15)
	limit := ratelimit.New(ratelimit.Config{Store: store},
		ratelimit.Policy{Name: "burst", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(1000)},
		ratelimit.Policy{Name: "monthly", Key: keyfunc.RemoteAddr, Limit: gcra.Quota(5, calendar)})

	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i := range 8 {
		before := server.Time(t.Context()).Val()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		begin, end := calendar.Period(before)
		code, retry := http.StatusOK, ""
		if i >= 5 {
			code, retry = http.StatusTooManyRequests, w.Header().Get("RateLimit-Reset")
		}
		got := []any{w.Code, w.Header().Get("RateLimit-Policy"), w.Header().Get("RateLimit-Remaining"), w.Header().Get("Retry-After")}
		want := []any{code, "5;w=" + strconv.FormatInt(int64(end.Sub(begin)/time.Second), 10), strconv.Itoa(max(4-i, 0)), retry}
		if !slices.Equal(got, want) {
			t.Errorf("request %d: got status, policy, remaining and Retry-After %q; want %q", i, got, want)
		}

		seconds, err := strconv.Atoi(w.Header().Get("RateLimit-Reset"))
		reset := before.Add(time.Duration(seconds) * time.Second)
		if err != nil || reset.Before(end.Add(-15*time.Second)) || reset.After(end.Add(2*time.Second)) {
			t.Errorf("request %d: got a reset in %d s, %v; want when the month ends, %v", i, seconds, err, end)
		}
	}
}
