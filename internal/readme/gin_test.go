package readme

import (
	"testing"

	"github.com/gin-gonic/gin"
)

import ratelimit "github.com/seed-e377111c/ratelimit/adapters/gin"

func ginUse(cfg ratelimit.Config, policies []ratelimit.Policy, router *gin.Engine) {
	router.Use(ratelimit.New(cfg, policies...))
}

func TestGin(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	cfg, policies := sample()
	router := gin.New()
	ginUse(cfg, policies, router)
	router.GET("/hello", func(*gin.Context) {})
	limits(t, router)
}
