package main

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"
	echov5 "github.com/labstack/echo/v5"
	echov5mw "github.com/labstack/echo/v5/middleware"
	"github.com/ulule/limiter/v3"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"

	echolimit "github.com/seed-e377111c/ratelimit/adapters/echo"
	echov5limit "github.com/seed-e377111c/ratelimit/adapters/echov5"
	ginlimit "github.com/seed-e377111c/ratelimit/adapters/gin"
	httplimits "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/middleware"
)

const (
	netHTTP  = "nethttp"
	inGin    = "gin"
	inEcho   = "echo"
	inEchoV5 = "echo_v5"
)

// frameworks build the contestants of each.
var frameworks = []func(limit) (httpContestants, error){netHTTPContestants, ginContestants, echoContestants, echoV5Contestants}

// httpContestants are handlers of one framework, bare and with limiters.
type httpContestants struct {
	framework string
	handlers  map[string]http.Handler
}

// contestantsOf puts every limiter around a handler of a framework, whose middleware
// is an M.
func contestantsOf[M any](framework string, l limit, handler func(...M) http.Handler, adapt func(*middleware.Limiter) M, place func(step) M, wrap func(wrapper) M) (httpContestants, error) {
	handlers := map[string]http.Handler{bare: handler()}
	for name, do := range steps(l) {
		handlers[name] = handler(place(do))
	}
	handlers[ours] = handler(adapt(newLimiter(l)))
	peers, err := wrappers(l)
	for name, peer := range peers {
		handlers[name] = handler(wrap(peer))
	}
	return httpContestants{framework, handlers}, err
}

func netHTTPContestants(l limit) (httpContestants, error) {
	handler := func(use ...wrapper) http.Handler {
		var h http.Handler = http.HandlerFunc(handle)
		for _, wrap := range use {
			h = wrap(h)
		}
		return h
	}
	h, err := contestantsOf(netHTTP, l, handler, httplimits.From, netHTTPStep, func(w wrapper) wrapper { return w })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", handle)
	h.handlers[bareMux] = mux
	h.handlers[oursMux] = httplimits.From(newLimiter(l))(mux)
	return h, err
}

func ginContestants(l limit) (httpContestants, error) {
	gin.SetMode(gin.ReleaseMode)
	handler := func(use ...gin.HandlerFunc) http.Handler {
		e := gin.New()
		e.Use(use...)
		e.GET("/users/:id", func(c *gin.Context) { handle(c.Writer, c.Request) })
		return e
	}
	h, err := contestantsOf(inGin, l, handler, ginlimit.From, ginStep, ginWrap)
	// ulule has middleware of gin's kind.
	h.handlers[ululeIn] = handler(ululegin.NewMiddleware(limiter.New(ululememory.NewStore(), ululeRate(l)),
		ululegin.WithKeyGetter(func(c *gin.Context) string { return clientOf(c.Request) })))
	return h, err
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
	handler := func(use ...echo.MiddlewareFunc) http.Handler {
		e := echo.New()
		e.Use(use...)
		e.GET("/users/:id", func(c echo.Context) error {
			_, err := c.Response().Write(body)
			return err
		})
		return e
	}
	h, err := contestantsOf(inEcho, l, handler, echolimit.From, echoStep, echo.WrapMiddleware)
	h.handlers[echoOwn] = handler(echomw.RateLimiterWithConfig(echomw.RateLimiterConfig{
		Store:               newEchoStore(l),
		IdentifierExtractor: func(c echo.Context) (string, error) { return clientKey(c.Request()) },
	}))
	return h, err
}

func echoV5Contestants(l limit) (httpContestants, error) {
	handler := func(use ...echov5.MiddlewareFunc) http.Handler {
		e := echov5.New()
		e.Use(use...)
		e.GET("/users/:id", func(c *echov5.Context) error {
			_, err := c.Response().Write(body)
			return err
		})
		return e
	}
	h, err := contestantsOf(inEchoV5, l, handler, echov5limit.From, echoV5Step, echov5.WrapMiddleware)

	// It writes X-RateLimit fields.
	h.handlers[echoV5Own] = handler(echov5mw.RateLimiterWithConfig(echov5mw.RateLimiterConfig{
		Store: echov5mw.NewRateLimiterMemoryStoreWithConfig(echov5mw.RateLimiterMemoryStoreConfig{
			Rate: 1 / l.emission().Seconds(), Burst: int(l.burst), ExpiresIn: month,
		}),
		IdentifierExtractor: func(c *echov5.Context) (string, error) { return clientKey(c.Request()) },
	}))
	return h, err
}
