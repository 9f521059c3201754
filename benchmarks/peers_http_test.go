package main

import (
	"net/http"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/throttled/throttled/v2"
	"github.com/ulule/limiter/v3"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

const tollboothIn = "tollbooth" // is whole middleware only

// clientField names the client in a request, so that everybody counts by the
// same key with the same function.
const clientField = "X-Client"

func clientOf(r *http.Request) string { return r.Header[clientField][0] }

func clientKey(r *http.Request) (string, error) { return clientOf(r), nil }

var body = []byte("ok")

func handle(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }

const path = "/users/1"

// wrapper is middleware of net/http.
type wrapper = func(http.Handler) http.Handler

// wrappers are the peers' middleware of net/http that write headers.
func wrappers(l limit) (map[string]wrapper, error) {
	throttledLimiter, err := newThrottledMemory(l)
	if err != nil {
		return nil, err
	}
	byClient := throttled.HTTPRateLimiterCtx{RateLimiter: throttledLimiter, VaryBy: varyByClient{}}
	store, err := newSethvargo(l)
	if err != nil {
		return nil, err
	}

	byKey, err := httplimit.NewMiddleware(store, clientKey)
	if err != nil {
		return nil, err
	}

	ulule := ululehttp.NewMiddleware(limiter.New(ululememory.NewStore(), ululeRate(l)), ululehttp.WithKeyGetter(clientOf))
	return map[string]wrapper{
		throttledIn: byClient.RateLimit,
		sethvargoIn: byKey.Handle,
		ululeIn:     ulule.Handler,
		httprateIn:  httprate.LimitBy(int(l.burst), windowOf(l), clientKey),
		tollboothIn: newTollbooth(l),
	}, nil
}

type varyByClient struct{}

func (varyByClient) Key(r *http.Request) string { return clientOf(r) }

// newTollbooth counts by address and header: it takes no function for a key.
func newTollbooth(l limit) wrapper {
	lim := tollbooth.NewLimiter(1/l.emission().Seconds(), &tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: month})
	lim.SetBurst(int(l.burst)).SetIgnoreURL(true).SetHeader(clientField, nil)
	lim.SetIPLookup(tollboothlimiter.IPLookup{Name: "RemoteAddr"})
	return tollbooth.HTTPMiddleware(lim)
}

// newLimiter returns ours with the limit and otherwise the defaults: the fields of draft 6.
func newLimiter(l limit) *middleware.Limiter {
	return middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()}, middleware.Policy{
		Name:  "client",
		Key:   clientKey,
		Limit: gcra.Limit{Count: l.count, Per: l.per, Burst: l.burst},
	}))
}

// writesFields reports whether a handler writes fields about its limit. Echo v4's own writes none.
func writesFields(name string) bool {
	return name != bare && name != bareMux && name != echoOwn
}
