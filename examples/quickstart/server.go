package main

import (
	"context"
	"net"
	"net/http"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/fleet"
	"github.com/seed-e377111c/ratelimit/middleware/inspect"
)

const inspectorPath = "/debug/ratelimit"

func newHandler(ctx context.Context, store gcra.Store, start page) (http.Handler, error) {
	config := ratelimit.Config{Store: store}
	if shared, ok := store.(*redisstore.Store); ok { // operators change limits there, with the command ratelimit
		overrides, err := fleet.New(ctx, fleet.Config{Store: shared})
		if err != nil {
			return nil, err
		}
		config.Override = overrides.Find
	}

	addresses := middleware.Must(middleware.New(config, addressPolicies...))
	users := middleware.Must(middleware.New(config, userPolicies...))
	inspector, err := inspect.New(inspect.Config{Authorize: fromThisMachine}, addresses, users)
	if err != nil {
		return nil, err
	}

	limitUser := ratelimit.From(users)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /hello", hello)
	mux.HandleFunc("POST /login", login)
	mux.Handle("GET /me", authenticated(limitUser(http.HandlerFunc(me))))
	mux.Handle("GET /report", authenticated(limitUser(http.HandlerFunc(report))))

	mux.Handle(inspectorPath, inspector)
	mux.Handle("GET /{$}", start)
	mux.Handle("GET /page/page.css", pageFiles)
	mux.Handle("GET /page/page.js", pageFiles)
	return ratelimit.From(addresses)(mux), nil
}

func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r, ok := authenticate(w, r); ok {
			next.ServeHTTP(w, r)
		}
	})
}

// fromThisMachine stands in for the sign-in of administrators that a real server
// has. Behind a proxy on this machine every client would pass. A site may point its name at this machine,
// so the name must be this machine's too.
func fromThisMachine(r *http.Request) bool {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	name, _, _ := net.SplitHostPort(r.Host)
	return net.ParseIP(host).IsLoopback() && (name == "localhost" || net.ParseIP(name).IsLoopback())
}
