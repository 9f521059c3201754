package readme

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
)

import ratelimit "github.com/seed-e377111c/ratelimit/adapters/chi"

func chiUse(cfg ratelimit.Config, policies []ratelimit.Policy, router chi.Router) {
	router.Use(ratelimit.New(cfg, policies...))
}

func TestChi(t *testing.T) {
	cfg, policies := sample()
	router := chi.NewRouter()
	chiUse(cfg, policies, router)
	router.Get("/hello", func(http.ResponseWriter, *http.Request) {})
	limits(t, router)
}
