package keyfunc

import "net/http"

// Route counts the route that the request was matched with, as r.Pattern has
// it: "route:GET /users/{id}". All paths that lead to one handler are one
// bucket, however they are spelled (//, /./, %2e, other values of {id}), and a
// client cannot have a fresh one by inventing a path. For the same reason a
// pattern without a method is one bucket for all methods, made-up ones included.
//
// Alone, it is one bucket a route for all clients together. With [Join] it is
// one for each client and route:
//
//	keyfunc.Join(keyfunc.RemoteAddr, keyfunc.Route)
//
// A request without a pattern is nobody in particular: one that no route
// matched, or one that has not reached the router yet. http.ServeMux sets the
// pattern before it calls the handler; the adapters of this module see to it
// where a framework does not.
func Route(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", nil
	}
	return "route:" + r.Pattern, nil
}
