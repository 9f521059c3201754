package main

import (
	"net/http"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
)

func withNetHTTP(store gcra.Store) http.Handler {
	limitAddress := ratelimit.New(ratelimit.Config{Store: store}, addressPolicies...)
	limitUser := ratelimit.New(ratelimit.Config{Store: store}, userPolicies...)

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /hello", hello)
	mux.HandleFunc("POST /login", login)
	mux.Handle("GET /me", authenticated(limitUser(http.HandlerFunc(me))))
	mux.Handle("GET /report", authenticated(limitUser(http.HandlerFunc(report))))
	return limitAddress(mux)
}

func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r, ok := authenticate(w, r); ok {
			next.ServeHTTP(w, r)
		}
	})
}
