package ratelimit

import "net/http"

// Gate lets a request pass while it holds a slot, or answers it: an *inflight.Gate.
type Gate interface {
	Allow(w http.ResponseWriter, r *http.Request) (_ *http.Request, release func(), ok bool)
}

// InFlight returns middleware that holds a slot while a handler runs:
//
//	router.Use(ratelimit.InFlight(running.Gate(inflight.Limit{Name: "exports", Key: user, Max: 3})))
//
// Limit.Routes and keyfunc.Route get the route as with [From]. It panics if err is not nil.
func InFlight(gate Gate, err error) func(http.Handler) http.Handler {
	if err != nil {
		panic(err)
	}
	return func(next http.Handler) http.Handler {
		known := routeOf(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r, release, ok := gate.Allow(w, known(r))
			if ok {
				defer release()
				next.ServeHTTP(w, r)
			}
		})
	}
}
