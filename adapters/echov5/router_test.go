package ratelimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/echov5"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// muxRouter is a router of one's own, whose routes are a ServeMux's.
type muxRouter struct {
	mux    *http.ServeMux
	routes map[string]echo.Route
}

func (m *muxRouter) Add(route echo.Route) (echo.RouteInfo, error) {
	at := route.Method + " " + route.Path
	m.mux.Handle(at, http.NotFoundHandler())
	m.routes[at] = route
	return route.ToRouteInfo([]string{"id"}), nil
}

func (m *muxRouter) Remove(string, string) error { return errors.New("not supported") }

func (m *muxRouter) Routes() (all echo.Routes) {
	for _, route := range m.routes {
		all = append(all, route.ToRouteInfo([]string{"id"}))
	}
	return all
}

func (m *muxRouter) Route(c *echo.Context) echo.HandlerFunc {
	_, at := m.mux.Handler(c.Request())
	route, ok := m.routes[at]
	if !ok {
		c.InitializeRoute(&echo.RouteInfo{}, &echo.PathValues{})
		return func(*echo.Context) error { return echo.ErrNotFound }
	}
	info := route.ToRouteInfo([]string{"id"})
	_, id, _ := strings.Cut(c.Request().URL.Path[1:], "/")
	c.InitializeRoute(&info, &echo.PathValues{{Name: "id", Value: id}})
	return route.Handler
}

// The limiter does not take the parameters of another router's syntax for text.
// Policies go by the path then, and none is escaped.
func TestRouterWithAnotherSyntax(t *testing.T) {
	for where, use := range map[string]func(*echo.Echo, ...echo.MiddlewareFunc){"Use": (*echo.Echo).Use, "Pre": (*echo.Echo).Pre} {
		var applied int
		e := echo.NewWithConfig(echo.Config{Router: &muxRouter{http.NewServeMux(), map[string]echo.Route{}}})
		use(e, ratelimit.New(ratelimit.Config{
			Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) { applied = len(d.Results) },
		}, ratelimit.Policy{Name: "me", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100), Routes: []string{"GET /users/me"}}))
		e.GET("/users/{id}", hello)
		for target, want := range map[string]int{"/users/me": 1, "/users/%6de": 1, "/users/7": 0} {
			w := httptest.NewRecorder()
			e.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
			if w.Code != http.StatusOK || applied != want {
				t.Errorf("%s, %s: got status %d, %d policies; want 200, %d", where, target, w.Code, applied, want)
			}
		}
	}
}
