package main

import (
	"net/http"

	"github.com/labstack/echo/v4"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/echo"
)

func withEcho(a *api, l limiters) http.Handler {
	get := []string{http.MethodGet, http.MethodHead}
	wrap := func(h http.HandlerFunc) echo.HandlerFunc { return echo.WrapHandler(h) }

	e := echo.New()
	e.Use(ratelimit.From(l.address))
	e.Match(get, "/healthz", wrap(a.healthz))
	e.Match(get, "/hello", wrap(a.hello))
	e.POST("/login", wrap(a.login))

	private := []echo.MiddlewareFunc{a.echoAuthenticated}
	if l.user != nil {
		private = append(private, ratelimit.From(l.user))
	}
	e.Match(get, "/me", wrap(a.me), private...)
	e.Match(get, "/report", wrap(a.report), private...)

	e.RouteNotFound("/*", wrap(a.noRoute))
	return e
}

func (a *api) echoAuthenticated(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, ok := a.authenticate(c.Response(), c.Request())
		if !ok {
			return nil
		}
		c.SetRequest(r)
		return next(c)
	}
}
