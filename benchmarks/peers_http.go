package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/httprate"
	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/throttled/throttled/v2"
	"github.com/ulule/limiter/v3"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"

	echolimit "github.com/seed-e377111c/ratelimit/adapters/echo"
	ginlimit "github.com/seed-e377111c/ratelimit/adapters/gin"
	httplimits "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// The frameworks.
const (
	netHTTP = "net/http"
	inGin   = "gin"
	inEcho  = "echo"
)

// The names of the contestants that are whole middleware only.
const (
	bare        = "bare handler"
	oursMux     = "ratelimit around a ServeMux"
	bareMux     = "bare ServeMux"
	oursAlone   = "ratelimit, NoContext"
	tollboothIn = "tollbooth"
)

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

// newLimiter is ours with the limit and otherwise the defaults: the fields of
// draft 6.
func newLimiter(l limit) *middleware.Limiter { return newLimiterWith(l, middleware.Config{}) }

func newLimiterWith(l limit, cfg middleware.Config) *middleware.Limiter {
	cfg.Store = gcra.NewMemory()
	return middleware.Must(middleware.New(cfg, middleware.Policy{
		Name:  "client",
		Key:   clientKey,
		Limit: gcra.Limit{Count: l.count, Per: l.per, Burst: l.burst},
	}))
}

// httpContestants are handlers of one framework, bare and with limiters.
type httpContestants struct {
	framework string
	handlers  map[string]http.Handler
}

func netHTTPContestants(l limit) (httpContestants, error) {
	peers, err := wrappers(l)
	if err != nil {
		return httpContestants{}, err
	}
	mux := func() *http.ServeMux {
		m := http.NewServeMux()
		m.HandleFunc("GET /users/{id}", handle)
		return m
	}
	handlers := map[string]http.Handler{
		bare:      http.HandlerFunc(handle),
		bareMux:   mux(),
		ours:      httplimits.From(newLimiter(l))(http.HandlerFunc(handle)),
		oursAlone: httplimits.From(newLimiterWith(l, middleware.Config{NoContext: true}))(http.HandlerFunc(handle)),
		oursMux:   httplimits.From(newLimiter(l))(mux()),
	}
	for name, wrap := range peers {
		handlers[name] = wrap(http.HandlerFunc(handle))
	}
	return httpContestants{netHTTP, handlers}, nil
}

func ginContestants(l limit) (httpContestants, error) {
	peers, err := wrappers(l)
	if err != nil {
		return httpContestants{}, err
	}
	gin.SetMode(gin.ReleaseMode)
	engine := func(use ...gin.HandlerFunc) http.Handler {
		e := gin.New()
		e.Use(use...)
		e.GET("/users/:id", func(c *gin.Context) { handle(c.Writer, c.Request) })
		return e
	}
	handlers := map[string]http.Handler{
		bare:      engine(),
		ours:      engine(ginlimit.From(newLimiter(l))),
		oursAlone: engine(ginlimit.From(newLimiterWith(l, middleware.Config{NoContext: true}))),
	}
	for name, wrap := range peers {
		handlers[name] = engine(ginWrap(wrap))
	}
	// ulule has middleware of gin's kind.
	handlers[ululeIn] = engine(ululegin.NewMiddleware(limiter.New(ululememory.NewStore(), ululeRate(l)),
		ululegin.WithKeyGetter(func(c *gin.Context) string { return clientOf(c.Request) })))
	return httpContestants{inGin, handlers}, nil
}

// ginWrap does for gin what echo.WrapMiddleware does for echo, in the same way.
func ginWrap(wrap wrapper) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

func echoContestants(l limit) (httpContestants, error) {
	peers, err := wrappers(l)
	if err != nil {
		return httpContestants{}, err
	}
	engine := func(use ...echo.MiddlewareFunc) http.Handler {
		e := echo.New()
		e.Use(use...)
		e.GET("/users/:id", func(c echo.Context) error {
			_, err := c.Response().Write(body)
			return err
		})
		return e
	}
	handlers := map[string]http.Handler{
		bare:      engine(),
		ours:      engine(echolimit.From(newLimiter(l))),
		oursAlone: engine(echolimit.From(newLimiterWith(l, middleware.Config{NoContext: true}))),
		echoOwn: engine(echomw.RateLimiterWithConfig(echomw.RateLimiterConfig{
			Store:               newEchoStore(l),
			IdentifierExtractor: func(c echo.Context) (string, error) { return clientKey(c.Request()) },
		})),
	}
	for name, wrap := range peers {
		handlers[name] = engine(echo.WrapMiddleware(wrap))
	}
	return httpContestants{inEcho, handlers}, nil
}

// without is the handler that another's overhead is over.
func without(name string) string {
	if name == oursMux {
		return bareMux
	}
	return bare
}

// tells reports whether a handler is a peer's middleware that writes headers.
// Echo's own writes none, and so does less.
func tells(name string) bool {
	switch name {
	case bare, bareMux, ours, oursMux, oursAlone, echoOwn:
		return false
	}
	return true
}

// contestants serve requests by calls of ServeHTTP.
func (h httpContestants) contestants() []contestant {
	var cs []contestant
	for _, name := range slices.Sorted(maps.Keys(h.handlers)) {
		cs = append(cs, contestant{name: name, caller: serveCaller(h.handlers[name])})
	}
	return cs
}

// serveCaller makes callers of a handler, each with a request and a recorder
// that it uses again and again, so that what they cost is the same for all.
func serveCaller(h http.Handler) func() check {
	return func() check {
		r := newRequest()
		client := []string{""}
		r.Header[clientField] = client
		w := newRecorder()
		return func(subject string) (bool, error) {
			client[0] = subject
			w.reset()
			h.ServeHTTP(w, r)
			switch w.status {
			case http.StatusOK:
				return true, nil
			case http.StatusTooManyRequests:
				return false, nil
			}
			return false, fmt.Errorf("answered %d", w.status)
		}
	}
}

// newRequest is a request as a server gets it.
func newRequest() *http.Request {
	r, err := http.NewRequest(http.MethodGet, path, nil)
	if err != nil {
		panic(err) // the URL is a constant
	}
	r.Host, r.RemoteAddr, r.RequestURI = "localhost", "192.0.2.1:1234", path
	return r
}

// recorder is a ResponseWriter that keeps the headers and the status only.
type recorder struct {
	header http.Header
	status int
}

func newRecorder() *recorder { return &recorder{header: http.Header{}} }

func (w *recorder) reset() {
	clear(w.header)
	w.status = 0
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(b), nil
}
