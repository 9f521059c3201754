package readme

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/inspect"
)

func inspected(mux *http.ServeMux, isAdmin func(*http.Request) bool, limiter *middleware.Limiter) error {
	page, err := inspect.New(inspect.Config{Authorize: isAdmin}, limiter)
	if err != nil {
		return err
	}
	mux.Handle("/debug/ratelimit", page)

	return nil
}

func TestInspect(t *testing.T) {
	limiter := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()},
		middleware.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(10)}))
	mux := http.NewServeMux()
	isAdmin := func(r *http.Request) bool { return r.Header.Get("Admin") != "" }
	if err := inspected(mux, isAdmin, limiter); err != nil {
		t.Fatal(err)
	}
	for admin, want := range map[string]int{"": http.StatusForbidden, "yes": http.StatusOK} {
		r := httptest.NewRequest("GET", "/debug/ratelimit", nil)
		r.Header.Set("Admin", admin)
		w := httptest.NewRecorder()
		if mux.ServeHTTP(w, r); w.Code != want {
			t.Errorf("admin %q: got %d; want %d", admin, w.Code, want)
		}
	}
}
