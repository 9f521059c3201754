package inspect_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/inspect"
)

func Example() {
	limiter := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()},
		middleware.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)}))

	isAdmin := func(r *http.Request) bool {
		user, password, ok := r.BasicAuth()
		return ok && user == "admin" && password == "from the environment"
	}
	page, err := inspect.New(inspect.Config{Authorize: isAdmin}, limiter)
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/ratelimit", page)

	r := httptest.NewRequest("GET", "/debug/ratelimit", nil)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Println("anyone:", w.Code)
	r.SetBasicAuth("admin", "from the environment")
	w = httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	fmt.Println("admin:", w.Code)
	// Output:
	// anyone: 403
	// admin: 200
}
