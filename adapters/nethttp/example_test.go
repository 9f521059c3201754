package ratelimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
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
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", hello)
	mux.HandleFunc("GET /search", hello)

	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)},
		ratelimit.Policy{Name: "search", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(2), Routes: []string{"GET /search"}},
	)
	get(limit(mux), "/hello", "/search", "/search", "/search")
	// Output:
	// /hello 200 remaining 99
	// /search 200 remaining 1
	// /search 200 remaining 0
	// /search 429 remaining 0
}

// The middleware may also wrap single handlers.
func ExampleNew_handler() {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(1)})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", hello)
	mux.Handle("GET /search", limit(http.HandlerFunc(hello)))
	get(mux, "/search", "/search", "/hello")
	// Output:
	// /search 200 remaining 0
	// /search 429 remaining 0
	// /hello 200 remaining
}

// Other middleware is between the limiter and the mux, and keys contain the route:
// Routes asks the mux for it.
func ExampleRoutes() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", hello)
	logged := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { mux.ServeHTTP(w, r) })

	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.Join(keyfunc.RemoteAddr, keyfunc.Route), Limit: gcra.PerMinute(2)})
	get(ratelimit.Routes(mux)(limit(logged)), "/users/1", "/users/2", "/users/3")
	// Output:
	// /users/1 200 remaining 1
	// /users/2 200 remaining 0
	// /users/3 429 remaining 0
}

// A configuration that comes from elsewhere should be reported, not panic.
func ExampleFrom() {
	limiter, err := middleware.New(middleware.Config{Store: gcra.NewMemory()},
		middleware.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(0)})
	if err != nil {
		fmt.Println(err)
		return
	}
	get(ratelimit.From(limiter)(http.HandlerFunc(hello)), "/")
	// Output: ratelimit: policy "client": Limit is 0/minute: count is 0; want at least 1
}

// The cost of a request is known when it is done.
func ExampleFromContext() {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(10)})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const rows = 8
		fmt.Fprintln(w, rows, "rows")
		if err := ratelimit.FromContext(r.Context()).Spend(r.Context(), rows, "client"); err != nil {
			fmt.Println("not charged:", err) // the store failed: log it, and do not bother the client
		}
	})
	get(limit(handler), "/report", "/report", "/report")
	// Output:
	// /report 200 remaining 9
	// /report 200 remaining 0
	// /report 429 remaining 0
}
