package ratelimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/go-chi/chi/v5"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/chi"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// get sends requests from one client and prints what comes back.
func get(h http.Handler, targets ...string) {
	for _, target := range targets {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		fmt.Println(target, w.Code, "remaining", w.Header().Get("RateLimit-Remaining"))
	}
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

func Example() {
	router := chi.NewRouter()
	router.Use(ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)},
		ratelimit.Policy{Name: "users", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(2), Routes: []string{"GET /users/{id}"}},
	))
	router.Get("/hello", hello)
	router.Get("/users/{id:[0-9]+}", hello)
	get(router, "/hello", "/users/1", "/users/2", "/users/3")
	// Output:
	// /hello 200 remaining 99
	// /users/1 200 remaining 1
	// /users/2 200 remaining 0
	// /users/3 429 remaining 0
}

// One bucket for each client and route, in Use.
func ExampleNew_route() {
	router := chi.NewRouter()
	router.Use(ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "route", Key: keyfunc.Join(keyfunc.RemoteAddr, keyfunc.Route), Limit: gcra.PerMinute(1)}))
	router.Get("/hello", hello)
	router.Route("/admin", func(admin chi.Router) {
		admin.Get("/users/{id}", hello)
	})
	get(router, "/hello", "/admin/users/1", "/admin/users/2")
	// Output:
	// /hello 200 remaining 0
	// /admin/users/1 200 remaining 0
	// /admin/users/2 429 remaining 0
}
