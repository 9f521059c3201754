package main

import (
	"net/http"
	"strings"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// limiters are those of this server. One limiter alone is made with the adapter's
// own New; these are made here because more than the adapter needs them.
type limiters struct {
	address *middleware.Limiter // stands before authentication
	user    *middleware.Limiter // stands after it; nil if all limits are in one
}

func newLimiters(cfg middleware.Config) (limiters, error) {
	address, err := middleware.New(cfg, byAddress()...)
	if err != nil {
		return limiters{}, err
	}
	user, err := middleware.New(cfg, byUser()...)
	return limiters{address, user}, err
}

// byAddress are the limits that stand before authentication. Behind a proxy the
// key is keyfunc.TrustedProxies: RemoteAddr would count the proxy.
func byAddress() []middleware.Policy {
	client := keyfunc.RemoteAddr
	return []middleware.Policy{
		{Name: "hello", Key: client, Limit: gcra.PerMinute(10), Routes: []string{"GET /hello"}},
		{Name: "login", Key: client, Limit: gcra.PerMinute(5), Routes: []string{"POST /login"}},
	}
}

// byUser are the limits that stand after authentication: two windows, both of
// which are charged or neither.
func byUser() []middleware.Policy {
	subject := keyfunc.Subject(user)
	return []middleware.Policy{
		{Name: "burst", Key: subject, Limit: gcra.PerSecond(5), Cost: cost},
		{Name: "daily", Key: subject, Limit: gcra.PerDay(100), Cost: cost},
	}
}

func cost(r *http.Request) int {
	if strings.HasSuffix(r.Pattern, " /report") {
		return 3
	}
	return 1
}
