package readme

import (
	"testing"

	"github.com/labstack/echo/v4"
)

import ratelimit "github.com/seed-e377111c/ratelimit/adapters/echo"

func echoUse(cfg ratelimit.Config, policies []ratelimit.Policy, e *echo.Echo) {
	e.Use(ratelimit.New(cfg, policies...))
}

func TestEcho(t *testing.T) {
	cfg, policies := sample()
	e := echo.New()
	echoUse(cfg, policies, e)
	e.GET("/hello", func(echo.Context) error { return nil })
	limits(t, e)
}
