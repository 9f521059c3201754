package main

import (
	"net/http"

	"github.com/labstack/echo/v5"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/echov5"
	"github.com/seed-e377111c/ratelimit/gcra"
)

func withEchoV5(store gcra.Store) http.Handler {
	wrap := func(h http.HandlerFunc) echo.HandlerFunc { return echo.WrapHandler(h) }
	e := echo.New()
	e.Use(ratelimit.New(ratelimit.Config{Store: store}, addressPolicies...))
	e.GET("/healthz", wrap(healthz))
	e.GET("/hello", wrap(hello))
	e.POST("/login", wrap(login))

	private := []echo.MiddlewareFunc{echoV5Authenticated, ratelimit.New(ratelimit.Config{Store: store}, userPolicies...)}
	e.GET("/me", wrap(me), private...)
	e.GET("/report", wrap(report), private...)
	return e
}

func echoV5Authenticated(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		r, ok := authenticate(c.Response(), c.Request())
		if !ok {
			return nil
		}
		c.SetRequest(r)
		return next(c)
	}
}
