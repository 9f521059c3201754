// Package migration holds docs/migration.md to what it says of other limiters.
// The page's code is compiled by internal/test/readme.
package migration

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"
	echov5 "github.com/labstack/echo/v5"
	echov5mw "github.com/labstack/echo/v5/middleware"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

var served = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

func inGin(h gin.HandlerFunc) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(h)
	router.GET("/*path", func(*gin.Context) {})
	return router
}

func inEcho(m echo.MiddlewareFunc) http.Handler {
	e := echo.New()
	e.Use(m)
	e.GET("/*", func(echo.Context) error { return nil })
	return e
}

func inEchoV5(m echov5.MiddlewareFunc) http.Handler {
	e := echov5.New()
	e.Use(m)
	e.GET("/*", func(*echov5.Context) error { return nil })
	return e
}

func throttledWith(store throttled.GCRAStoreCtx) http.Handler {
	lim, _ := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerHour(20), MaxBurst: 5})
	with := throttled.HTTPRateLimiterCtx{RateLimiter: lim, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
	return with.RateLimit(served)
}

func ululeRate() limiter.Rate { return limiter.Rate{Limit: 6, Period: time.Hour} }

func tollboothWith(lookup string) http.Handler {
	lmt := tollbooth.NewLimiter(1.0/3600, nil).SetBurst(6)
	return tollbooth.LimitHandler(lmt.SetIPLookup(tollboothlimiter.IPLookup{Name: lookup}), served)
}

func sethvargo(t *testing.T) http.Handler {
	t.Helper()
	store, err := memorystore.New(&memorystore.Config{Tokens: 6, Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close(context.WithoutCancel(t.Context())) })
	m, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
	if err != nil {
		t.Fatal(err)
	}
	return m.Handle(served)
}

func memory() throttled.GCRAStoreCtx {
	store, _ := memstore.NewCtx(100)
	return store
}

// do sends a request from one client, and returns the response with the fields
// that a limiter has written.
func do(h http.Handler, path, forwarded string) (w *httptest.ResponseRecorder, fields string) {
	w = httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if forwarded != "" {
		r.Header.Set("X-Forwarded-For", forwarded)
	}
	h.ServeHTTP(w, r)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(w.Header())) {
		if strings.Contains(name, "Rate") || name == "Retry-After" {
			names = append(names, strings.TrimPrefix(name, "X-Ratelimit-"))
		}
	}
	return w, strings.Join(names, " ")
}

// All allow 6 an hour. The page says which fields a response has, and whether a
// client gets a new bucket with a new path or with an X-Forwarded-For of its own.
func TestLimiters(t *testing.T) {
	const limitRemainingReset = "Limit Remaining Reset"
	for name, c := range map[string]struct {
		handler       http.Handler
		allowed       string // fields of a response
		denied        string
		path, forward bool // a new bucket for each
	}{
		"ratelimit": {ratelimit.New(
			ratelimit.Config{Store: gcra.NewMemory(), Headers: middleware.HeadersXRateLimit},
			ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(6)})(served),
			limitRemainingReset, "Retry-After " + limitRemainingReset, false, false},
		"throttled": {throttledWith(memory()), limitRemainingReset, "Retry-After " + limitRemainingReset, false, false},
		"ulule": {ululehttp.NewMiddleware(limiter.New(ululememory.NewStore(), ululeRate())).Handler(served),
			limitRemainingReset, limitRemainingReset, false, false},
		"ulule, TrustForwardHeader": {
			ululehttp.NewMiddleware(limiter.New(ululememory.NewStore(), ululeRate(), limiter.WithTrustForwardHeader(true))).Handler(served),
			limitRemainingReset, limitRemainingReset, false, true},
		"ulule in Gin": {inGin(ululegin.NewMiddleware(limiter.New(ululememory.NewStore(), ululeRate()))),
			limitRemainingReset, limitRemainingReset, false, true},
		//lint:ignore SA1019 the page is for programs that use it
		"httprate": {httprate.LimitBy(6, time.Hour, httprate.KeyByIP)(served),
			limitRemainingReset, "Retry-After " + limitRemainingReset, false, false},
		"httprate by endpoint": {httprate.LimitBy(6, time.Hour, httprate.KeyByEndpoint)(served),
			limitRemainingReset, "Retry-After " + limitRemainingReset, true, false},
		"tollbooth": {tollboothWith("RemoteAddr"),
			"Ratelimit-Limit Ratelimit-Remaining Ratelimit-Reset X-Rate-Limit-Duration X-Rate-Limit-Limit X-Rate-Limit-Request-Remote-Addr",
			"Ratelimit-Limit Ratelimit-Remaining Ratelimit-Reset X-Rate-Limit-Duration X-Rate-Limit-Limit X-Rate-Limit-Request-Remote-Addr",
			true, false},
		"sethvargo": {sethvargo(t), limitRemainingReset, "Retry-After " + limitRemainingReset, false, false},
		"echo": {inEcho(echomw.RateLimiter(echomw.NewRateLimiterMemoryStoreWithConfig(
			echomw.RateLimiterMemoryStoreConfig{Rate: 1.0 / 3600, Burst: 6}))), "", "", false, false},
		"echo v5": {inEchoV5(echov5mw.RateLimiter(echov5mw.NewRateLimiterMemoryStoreWithConfig(
			echov5mw.RateLimiterMemoryStoreConfig{Rate: 1.0 / 3600, Burst: 6}))),
			"Limit Remaining", "Retry-After Limit Remaining", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range 7 {
				w, fields := do(c.handler, "/a", "")
				want, status := c.allowed, http.StatusOK
				if i == 6 {
					want, status = c.denied, http.StatusTooManyRequests
				}
				if w.Code != status || fields != want {
					t.Errorf("request %d: got %d with %q; want %d with %q", i+1, w.Code, fields, status, want)
				}
			}

			if w, _ := do(c.handler, "/b", ""); (w.Code == http.StatusOK) != c.path {
				t.Errorf("another path: got %d; want a new bucket to be %v", w.Code, c.path)
			}
			if w, _ := do(c.handler, "/a", "192.0.2.7"); (w.Code == http.StatusOK) != c.forward {
				t.Errorf("an X-Forwarded-For of the client's own: got %d; want a new bucket to be %v", w.Code, c.forward)
			}
		})
	}
}

// A denied client of httprate is to wait for the whole window; Reset of ulule and
// httprate is a Unix time.
func TestTimes(t *testing.T) {
	h := httprate.LimitBy(1, time.Hour, httprate.Key("*"))(served)
	do(h, "/", "")
	w, _ := do(h, "/", "")
	if got := w.Header().Get("Retry-After"); got != "3600" {
		t.Errorf("httprate: got Retry-After %s; want 3600", got)
	}

	for name, h := range map[string]http.Handler{
		"httprate": h,
		"ulule":    ululehttp.NewMiddleware(limiter.New(ululememory.NewStore(), ululeRate())).Handler(served),
	} {
		if w, _ := do(h, "/", ""); len(w.Header().Get("X-RateLimit-Reset")) != len("1700000000") {
			t.Errorf("%s: got X-RateLimit-Reset %s; want a Unix time", name, w.Header().Get("X-RateLimit-Reset"))
		}
	}

	dates := sethvargo(t)
	for range 6 {
		do(dates, "/", "")
	}

	w, _ = do(dates, "/", "")
	if _, err := time.Parse(time.RFC1123, w.Header().Get("Retry-After")); err != nil {
		t.Errorf("sethvargo: got Retry-After %q; want a date", w.Header().Get("Retry-After"))
	}
	if w, _ := do(tollboothWith("RemoteAddr"), "/", ""); w.Header().Get("RateLimit-Reset") != "1" {
		t.Errorf("tollbooth: got RateLimit-Reset %s; want 1", w.Header().Get("RateLimit-Reset"))
	}
}

// Without SetIPLookup, LimitHandler of tollbooth limits nothing.
func TestTollboothWithoutLookup(t *testing.T) {
	h := tollboothWith("")
	for range 20 {
		if w, _ := do(h, "/", ""); w.Code != http.StatusOK {
			t.Fatalf("got %d; want 200", w.Code)
		}
	}
}

// throttled tells a look at an empty bucket when one unit is there.
func TestThrottledLooks(t *testing.T) {
	lim, err := throttled.NewGCRARateLimiterCtx(memory(), throttled.RateQuota{MaxRate: throttled.PerHour(1), MaxBurst: 0})
	if err != nil {
		t.Fatal(err)
	}
	for _, quantity := range []int{1, 0} {
		if _, got, err := lim.RateLimitCtx(t.Context(), "a", quantity); err != nil || quantity == 0 && got.RetryAfter <= 0 {
			t.Errorf("throttled, quantity %d: got RetryAfter %v, %v; want a wait", quantity, got.RetryAfter, err)
		}
	}
}

// A denied request adds to the count of ulule.
func TestUluleCountsDenied(t *testing.T) {
	lim := limiter.New(ululememory.NewStore(), limiter.Rate{Limit: 1, Period: time.Hour})
	for range 3 {
		_, _ = lim.Get(t.Context(), "a")
	}
	lim.Rate.Limit = 3
	if got, _ := lim.Get(t.Context(), "a"); !got.Reached {
		t.Error("the fourth request of 3 is allowed; want the two denied ones counted")
	}
}

var errStore = errors.New("store fails")

type failing struct{ throttled.GCRAStoreCtx }

func (failing) GetWithTime(context.Context, string) (int64, time.Time, error) {
	return 0, time.Time{}, errStore
}

type failingUlule struct{ limiter.Store }

func (failingUlule) Get(context.Context, string, limiter.Rate) (limiter.Context, error) {
	return limiter.Context{}, errStore
}

type failingCounter struct{ httprate.LimitCounter }

func (failingCounter) Config(int, time.Duration)                          {}
func (failingCounter) Get(string, time.Time, time.Time) (int, int, error) { return 0, 0, errStore }

type failingEcho struct{}

func (failingEcho) Allow(string) (bool, error) { return false, errStore }

// What a client gets when the store fails.
func TestFailure(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.Handler
		status  int
		body    string
	}{
		"throttled": {throttledWith(failing{}), 500, "internal error\n"},
		"httprate":  {httprate.LimitBy(6, time.Hour, httprate.Key("*"), httprate.WithLimitCounter(failingCounter{}))(served), 428, "store fails\nToo Many Requests\n"},
		"echo":      {inEcho(echomw.RateLimiter(failingEcho{})), 429, `{"message":"rate limit exceeded"}` + "\n"},
	} {
		if w, _ := do(c.handler, "/", ""); w.Code != c.status || w.Body.String() != c.body {
			t.Errorf("%s: got %d %q; want %d %q", name, w.Code, w.Body, c.status, c.body)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("ulule: got no panic")
		}
	}()

	do(ululehttp.NewMiddleware(limiter.New(failingUlule{}, ululeRate())).Handler(served), "/", "")
}

// After the first of 10 a second redis_rate reports 8 or 9, by the clock of
// Redis; here 9 remain. Its keys begin with rate:.
func TestRedisRate(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr})
	defer client.Close()

	lim := redis_rate.NewLimiter(client)
	fewer := 0
	for i := range 200 {
		key := string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		res, err := lim.Allow(t.Context(), key, redis_rate.PerSecond(10))
		if err != nil {
			t.Fatal(err)
		}
		if res.Remaining == 8 {
			fewer++
		}
	}

	if fewer == 0 {
		t.Error("redis_rate never reported 8")
	}
	if keys, err := client.Keys(t.Context(), "*").Result(); err != nil || len(keys) == 0 || !strings.HasPrefix(keys[0], "rate:") {
		t.Errorf("got keys %q, %v; want them to begin with rate:", keys, err)
	}
	if res, err := lim.AllowN(t.Context(), "many", redis_rate.Limit{Rate: 10, Burst: 10, Period: time.Second}, 1000); err != nil || res.RetryAfter.Round(time.Second) != 99*time.Second {
		t.Errorf("1000 of a burst of 10: got RetryAfter %v, %v; want 99 s", res.RetryAfter, err)
	}
	if res, err := lim.Allow(t.Context(), "none", redis_rate.Limit{Rate: 10, Period: time.Second}); err != nil || res.Allowed != 0 {
		t.Errorf("a burst of 0: got %d allowed, %v; want 0", res.Allowed, err)
	}

	store, err := redisstore.New(client, redisstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ours, err := gcra.Take(t.Context(), store, gcra.Charge{Subject: "a", Policy: "p", Cost: 1, Limit: gcra.PerSecond(10)})
	if err != nil || ours.Remaining != 9 {
		t.Errorf("got %d remaining, %v; want 9", ours.Remaining, err)
	}
}
