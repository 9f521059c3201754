package readme

import (
	"net/http"
	"testing"
)

import ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"

func nethttpHandler(cfg ratelimit.Config, policies []ratelimit.Policy, mux *http.ServeMux) http.Handler {
	handler := ratelimit.New(cfg, policies...)(mux)

	return handler
}

func TestNetHTTP(t *testing.T) {
	cfg, policies := sample()
	mux := http.NewServeMux()
	h := nethttpHandler(cfg, policies, mux)
	mux.HandleFunc("GET /hello", func(http.ResponseWriter, *http.Request) {})
	limits(t, h)
}
