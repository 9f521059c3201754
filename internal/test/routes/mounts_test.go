package routes

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	echov4 "github.com/labstack/echo/v4"
	echov4middleware "github.com/labstack/echo/v4/middleware"
	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"

	viachi "github.com/seed-e377111c/ratelimit/adapters/chi"
	viaechov4 "github.com/seed-e377111c/ratelimit/adapters/echo"
	viaecho "github.com/seed-e377111c/ratelimit/adapters/echov5"
	viagin "github.com/seed-e377111c/ratelimit/adapters/gin"
	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/race"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// endpoint is a handler of a router: of one route, or of all paths below a mount.
type endpoint struct {
	route
	mount bool
	http.Handler
}

func (e endpoint) String() string { return strings.TrimSpace(e.method + " " + e.path) }

// layer builds a router with some of the settings that change paths. l may be nil.
type layer struct {
	name   string
	syntax syntax
	// With rewrites, what comes before the limiter, or has it, may rewrite the path.
	build func(r random, l *middleware.Limiter, rewrites bool, endpoints []endpoint) http.Handler
}

var layers = []layer{
	{"mux", muxSyntax, func(r random, l *middleware.Limiter, _ bool, endpoints []endpoint) http.Handler {
		wrap := func(h http.Handler) http.Handler { return h }
		around := l != nil && r.IntN(2) == 0
		if l != nil && !around {
			wrap = vianethttp.From(l)
		}

		mux := http.NewServeMux()
		for _, e := range endpoints {
			if e.mount {
				mux.Handle(e.path+"/", wrap(e))
			} else {
				mux.Handle(e.method+" "+e.path, wrap(e))
			}
		}
		if around {
			return vianethttp.From(l)(mux)
		}
		return mux
	}},
	{"chi", chiSyntax, func(r random, l *middleware.Limiter, _ bool, endpoints []endpoint) http.Handler {
		router := chi.NewRouter()
		if r.IntN(3) == 0 {
			router.Use(chimiddleware.CleanPath)
		}
		if r.IntN(3) == 0 {
			router.Use(chimiddleware.StripSlashes)
		}
		if l != nil {
			router.Use(viachi.From(l))
		}

		for _, e := range endpoints {
			if e.mount {
				router.Mount(e.path, e)
			} else {
				router.Method(e.method, e.path, e)
			}
		}
		return router
	}},
	{"gin", ginSyntax, func(r random, l *middleware.Limiter, _ bool, endpoints []endpoint) http.Handler {
		engine := gin.New()
		for _, setting := range []*bool{
			&engine.RemoveExtraSlash, &engine.UseRawPath, &engine.UnescapePathValues, &engine.RedirectFixedPath, &engine.RedirectTrailingSlash,
		} {
			*setting = r.IntN(2) == 0
		}
		if l != nil {
			engine.Use(viagin.From(l))
		}
		for _, e := range endpoints {
			if e.mount {
				engine.Any(e.path+"/*rest", gin.WrapH(e))
			} else {
				engine.Handle(e.method, e.path, gin.WrapH(e))
			}
		}
		return engine
	}},
	{"echo v4", echoSyntax, func(r random, l *middleware.Limiter, rewrites bool, endpoints []endpoint) http.Handler {
		e := echov4.New()
		switch n := r.IntN(6); {
		case n == 0:
			e.Pre(echov4middleware.AddTrailingSlash())
		case n == 1:
			e.Pre(echov4middleware.RemoveTrailingSlash())
		case n <= 3 && rewrites:
			e.Pre(echov4middleware.Rewrite(map[string]string{"/old/*": "/$1"}))
		}
		if l != nil {
			[]func(...echov4.MiddlewareFunc){e.Use, e.Pre}[r.IntN(2)](viaechov4.From(l))
		}
		for _, at := range endpoints {
			if at.mount {
				e.Any(at.path+"/*", echov4.WrapHandler(at))
			} else {
				e.Add(at.method, at.path, echov4.WrapHandler(at))
			}
		}
		return e
	}},
	{"echo v5", echoSyntax, func(r random, l *middleware.Limiter, rewrites bool, endpoints []endpoint) http.Handler {
		e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(echo.RouterConfig{
			UseEscapedPathForMatching: r.IntN(2) == 0, AutoHandleHEAD: r.IntN(2) == 0,
		})})
		switch n := r.IntN(6); {
		case n == 0:
			e.Pre(echomiddleware.AddTrailingSlash())
		case n == 1:
			e.Pre(echomiddleware.RemoveTrailingSlash())
		case n <= 3 && rewrites:
			e.Pre(echomiddleware.Rewrite(map[string]string{"/old/*": "/$1"}))
		}
		if l != nil {
			[]func(...echo.MiddlewareFunc){e.Use, e.Pre}[r.IntN(2)](viaecho.From(l))
		}
		for _, at := range endpoints {
			if at.mount {
				e.Any(at.path+"/*", echo.WrapHandler(at))
			} else {
				e.Add(at.method, at.path, echo.WrapHandler(at))
			}
		}
		return e
	}},
	{"StripPrefix", syntax{}, func(_ random, l *middleware.Limiter, _ bool, endpoints []endpoint) http.Handler {
		if l != nil {
			return vianethttp.From(l)(endpoints[0])
		}
		return endpoints[0]
	}},
}

// strip is [http.StripPrefix] for whole segments. Of /mex that leaves "x", which gin may take for /x, where no
// policy for "/me/{id}" applies.
func strip(prefix string, next http.Handler) http.Handler {
	stripped := http.StripPrefix(prefix, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, prefix+"/") && strings.HasPrefix(cmp.Or(r.URL.RawPath, r.URL.Path), prefix+"/") {
			stripped.ServeHTTP(w, r)
		}
	})
}

// lower is middleware that makes paths lower case.
func lower(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path, r.URL.RawPath = strings.ToLower(r.URL.Path), strings.ToLower(r.URL.RawPath)
		next.ServeHTTP(w, r)
	})
}

// site is a router below one to three mounts, with a limiter in front of one of them.
type site struct {
	http.Handler
	text   string
	routes []shape // as a client sees them
	seen   []shape // as the limiter does
}

// site draws a site, and returns false if a framework rejects it. served gets the index of the route that
// has served a request.
func (r random) site(l *middleware.Limiter, served func(int)) (s site, ok bool) {
	defer func() {
		if recover() != nil { // two routes conflict
			ok = false
		}
	}()

	// The last layer has the routes, the others are mounts.
	chain, prefixes, strips := []layer{}, []segment{}, []bool{}
	for range 1 + r.IntN(3) {
		chain = append(chain, layers[r.IntN(len(layers))])
		prefixes = append(prefixes, segment{text, r.one("users", "me", "api", "a")})
		strips = append(strips, r.IntN(2) == 0)
	}
	chain = append(chain, layers[r.IntN(len(layers)-1)])
	limited, around := r.IntN(len(chain)), r.IntN(4) == 0

	// A layer sees the path from the last prefix on that is stripped. A chi router in another one goes by
	// what that has left of the path, wherever it is, so it is drawn only next to it.
	seen := make([][]segment, len(chain)) // the prefixes that a layer sees in front of its own
	for i := range prefixes {
		inChi := i+1 < len(chain) && chain[i].name == "chi" && chain[i+1].name == "chi"
		strips[i] = strips[i] && !inChi || chain[i].name == "StripPrefix"
		if !strips[i] {
			seen[i+1] = slices.Concat(seen[i], prefixes[i:i+1])
		}
		for j := range i {
			if chain[j].name == "chi" && chain[i+1].name == "chi" && chain[i].name != "chi" {
				return s, false
			}
		}
	}

	var endpoints []endpoint
	for range 1 + r.IntN(3) {
		leaf := r.shape(muxSyntax)
		s.routes = append(s.routes, shape{leaf.method, slices.Concat(prefixes, leaf.segments), leaf.tail})
		s.seen = append(s.seen, shape{leaf.method, slices.Concat(seen[limited], prefixes[limited:], leaf.segments), leaf.tail})
		i := len(endpoints)
		endpoints = append(endpoints, endpoint{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served(i) })})
	}

	for i := len(chain) - 1; i >= 0; i-- {
		base := seen[i]
		if i > 0 && chain[i].name == "chi" && chain[i-1].name == "chi" {
			base = nil
		}

		if i == len(chain)-1 {
			for n := range endpoints {
				whole := s.routes[n]
				whole.segments = slices.Concat(base, whole.segments[len(prefixes):])
				endpoints[n].route = route{whole.method, whole.path(chain[i].syntax)}
			}
		} else {
			inner := s.Handler
			if strips[i] {
				inner = strip(shape{segments: slices.Concat(seen[i], prefixes[i:i+1])}.path(muxSyntax), inner)
			}
			at := shape{segments: slices.Concat(base, prefixes[i:i+1])}
			endpoints = []endpoint{{route{path: at.path(muxSyntax)}, true, inner}}
		}

		limiter := l
		if i != limited || around {
			limiter = nil
		}
		s.Handler = chain[i].build(r, limiter, i <= limited && !(i == limited && around), endpoints)
		if i == limited && around {
			s.Handler = vianethttp.From(l)(s.Handler)
		}
		s.text = fmt.Sprintf("%s %v, %s", chain[i].name, endpoints, s.text)
		if i == limited {
			s.text = "LIMIT " + s.text
		}
		if r.IntN(8) == 0 {
			s.Handler, s.text = lower(s.Handler), "lower "+s.text
		}
	}
	return s, true
}

// No request is served without the policy that names its route as the limiter sees it, wherever the limiter is
// among routers that are mounted in each other. A seed in RATELIMIT_SEED repeats a failure.
func TestRandomMounts(t *testing.T) {
	race.Skip(t)
	sites, first := 3000, time.Now().UnixNano()
	if testing.Short() {
		sites = 600
	}
	if os.Getenv("RATELIMIT_LONG") != "" {
		sites = 100_000
	}
	if text := os.Getenv("RATELIMIT_SEED"); text != "" {
		var err error
		if first, err = strconv.ParseInt(text, 10, 64); err != nil {
			t.Fatal(err)
		}
		sites = 1
	}
	t.Logf("seeds from %d", first)

	charged, saw := map[string]bool{}, ""
	limiter := middleware.Must(middleware.New(middleware.Config{
		Store: gcra.NewMemory(), Logger: slog.New(slog.DiscardHandler), Headers: middleware.HeadersNone,
		Observe: func(r *http.Request, d *middleware.Decision) {
			saw = fmt.Sprintf("%q %q %q %v", r.Pattern, r.URL.Path, r.URL.RawPath, d.Results)
			for _, result := range d.Results {
				charged[result.Policy] = true
			}
		},
	}, middleware.Policy{Name: "first", Key: sitetest.Everybody, Limit: gcra.PerSecond(1)}))

	drawn, served := 0, 0
	for seed := first; seed < first+int64(sites); seed++ {
		r := random{rand.New(rand.NewPCG(uint64(seed), 0))} // a failure is repeated by its seed
		by := -1
		s, ok := r.site(limiter, func(i int) { by = i })
		if !ok {
			continue
		}
		drawn++

		var policies []middleware.Policy
		for i, seen := range s.seen {
			policies = append(policies, middleware.Policy{
				Name: fmt.Sprint(i), Key: sitetest.Everybody, Limit: gcra.PerSecond(1), Routes: []string{r.policy(seen)}, Shadow: true,
			})
		}
		if err := limiter.Reload(policies...); err != nil {
			t.Fatalf("seed %d, %s: %v", seed, s.text, err)
		}

		for range 32 {
			route := s.routes[r.IntN(len(s.routes))]
			target := r.one("", "", "", "/old") + r.target(route)
			by = -1
			clear(charged)
			func() {
				defer func() { _ = recover() }() // gin 1.12 panics on some requests before they have a route
				s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(r.one(route.method, route.method, "HEAD"), target, nil))
			}()

			if by < 0 {
				continue
			}
			served++
			if !charged[policies[by].Name] {
				t.Fatalf("RATELIMIT_SEED=%d, %s: %s was served by route %d without policy %q; the limiter saw %s",
					seed, s.text, target, by, policies[by].Routes[0], saw)
			}
		}
	}

	t.Logf("%d sites, %d requests served", drawn, served)
	if sites > 1 && (drawn < sites/2 || served < 2*drawn) {
		t.Error("want more of them")
	}
}
