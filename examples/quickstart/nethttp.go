package main

import (
	"net/http"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
)

func withNetHTTP(a *api, l limiters) http.Handler {
	private := func(h http.HandlerFunc) http.Handler {
		if l.user == nil {
			return a.authenticated(h)
		}
		return a.authenticated(ratelimit.From(l.user)(h))
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", a.healthz)
	mux.HandleFunc("GET /hello", a.hello)
	mux.HandleFunc("POST /login", a.login)
	mux.Handle("GET /me", private(a.me))
	mux.Handle("GET /report", private(a.report))
	mux.HandleFunc("/", a.noRoute)

	limitAddress := ratelimit.From(l.address)
	return limitAddress(mux)
}

func (a *api) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r, ok := a.authenticate(w, r); ok {
			next.ServeHTTP(w, r)
		}
	})
}
