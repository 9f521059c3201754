package main

import (
	"net/http"

	"github.com/gin-gonic/gin"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/gin"
	"github.com/seed-e377111c/ratelimit/gcra"
)

func withGin(store gcra.Store) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(ratelimit.New(ratelimit.Config{Store: store}, addressPolicies...))
	router.GET("/healthz", gin.WrapF(healthz))
	router.GET("/hello", gin.WrapF(hello))
	router.POST("/login", gin.WrapF(login))

	private := router.Group("/", ginAuthenticated, ratelimit.New(ratelimit.Config{Store: store}, userPolicies...))
	private.GET("/me", gin.WrapF(me))
	private.GET("/report", gin.WrapF(report))
	return router
}

func ginAuthenticated(c *gin.Context) {
	var ok bool
	if c.Request, ok = authenticate(c.Writer, c.Request); !ok {
		c.Abort()
	}
}
