package main

import (
	"net/http"

	"github.com/gin-gonic/gin"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/gin"
)

func withGin(a *api, l limiters) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	get := []string{http.MethodGet, http.MethodHead}

	router := gin.New()
	router.Use(ratelimit.From(l.address))
	router.Match(get, "/healthz", gin.WrapF(a.healthz))
	router.Match(get, "/hello", gin.WrapF(a.hello))
	router.POST("/login", gin.WrapF(a.login))

	private := router.Group("/", a.ginAuthenticated)
	if l.user != nil {
		private.Use(ratelimit.From(l.user))
	}
	private.Match(get, "/me", gin.WrapF(a.me))
	private.Match(get, "/report", gin.WrapF(a.report))

	router.NoRoute(gin.WrapF(a.noRoute))
	return router
}

func (a *api) ginAuthenticated(c *gin.Context) {
	var ok bool
	if c.Request, ok = a.authenticate(c.Writer, c.Request); !ok {
		c.Abort()
	}
}
