package ratelimit

import "net/http"

// Gate lets a request pass while it holds a slot, or answers it: an *inflight.Gate.
type Gate interface {
	Allow(w http.ResponseWriter, r *http.Request) (_ *http.Request, release func(), ok bool)
}

// InFlight returns middleware that holds a slot while a handler runs:
//
//	handler := ratelimit.InFlight(running.Gate(inflight.Limit{Name: "exports", Key: user, Max: 3}))(mux)
//
// Around an [http.ServeMux], Limit.Routes and keyfunc.Route see the mux's routes; see [Routes]. It
// panics if err is not nil.
func InFlight(gate Gate, err error) func(http.Handler) http.Handler {
	if err != nil {
		panic(err)
	}
	return func(next http.Handler) http.Handler {
		held := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r, release, ok := gate.Allow(w, r)
			if ok {
				defer release()
				next.ServeHTTP(w, r)
			}
		})
		// A mux finds the route when it serves, which is too late for Routes.
		if mux, ok := next.(*http.ServeMux); ok {
			return Routes(mux)(held)
		}
		return held
	}
}
