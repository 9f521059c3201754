package main

import (
	"net/http"
	"strings"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// addressPolicies limit addresses, before authentication. Behind a proxy the key
// is keyfunc.TrustedProxies; RemoteAddr would count the proxy.
var addressPolicies = []middleware.Policy{
	{Name: "hello", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(10), Routes: []string{"GET /hello"}},
	{Name: "login", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(5), Routes: []string{"POST /login"}},
}

// userPolicies limit users, after authentication: both windows are charged, or
// neither is.
var userPolicies = []middleware.Policy{
	{Name: "burst", Key: keyfunc.Subject(userOf), Limit: gcra.PerSecond(5)},
	{Name: "daily", Key: keyfunc.Subject(userOf), Limit: gcra.PerDay(100), Cost: cost},
}

// cost is 60 for a report, so that a user gets one at once and the next one after
// some hours.
func cost(r *http.Request) int64 {
	if strings.HasSuffix(r.Pattern, " /report") {
		return 60
	}
	return 1
}
