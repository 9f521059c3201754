package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestRoutes(t *testing.T) {
	// Each request is sent twice: the match of a route is cached, and must not be
	// used for another route.
	for _, test := range []struct {
		routes  string // of the policy
		route   string // that will serve the request, "" if unknown
		request string
		host    string
		want    bool
	}{
		// The route decides where it is known, however the path is spelled.
		{"POST /login", "POST /login", "POST /anything", "", true},
		{"POST /login", "/login", "POST /login", "", true},
		{"POST /login", "/login", "PUT /login", "", false},
		{"GET /login", "/login", "HEAD /login", "", true},
		{"POST /login", "POST /login", "GET /login", "", true}, // rewritten by middleware between router and limiter
		{"/login", "/other", "GET /other", "", false},
		{"/users/{id}", "GET /users/{name}", "GET /users/7", "", true},
		{"/users/", "GET /users/{name}", "GET /users/7", "", true},
		{"/a,/b", "/b", "GET /b", "", true},
		// The path is not the route's: something has removed its beginning.
		{"POST /login", "POST /auth/login", "POST /login", "", true},
		{"POST /login", "POST /auth/login", "POST /logout", "", false},
		{"POST /login", "GET /auth/login", "GET /login", "", false},
		{"/{action}", "/auth/", "POST /login", "", true},
		{"/{action}/{id}", "/auth/", "POST /auth/7", "", true},
		// A route that is wider than the policy's leaves the rest to the path.
		{"/users/me", "/users/{id}", "GET /users/me", "", true},
		{"/users/me", "/users/{id}", "GET /users/you", "", false},
		{"/api/login", "/api/", "POST /api/LOGIN/", "", true},
		{"/api/login", "/api/", "POST /api/logout", "", false},
		{"/user_admin", "/user_:name", "GET /user_admin", "", true},
		{"/static/", "/static*", "GET /static/x", "", true},
		// If the route is known, a parameter is one segment.
		{"/search/:q", "/search/{q}/{page}", "GET /search/a/b", "", false},
		{"/search/:q", "/{x}/{y}/{z}", "GET /search/a/b", "", false},
		// Behind an open route, or none, there may be echo, whose last parameter is all that is left.
		{"/search/:q", "/", "GET /search/a/b", "", true},
		{"/search/:q", "/search/", "GET /search/a/b", "", true},
		{"/search/:q", "", "GET /search/a/b", "", true},
		{"/users/:id/posts", "", "GET /users/a/b/posts", "", false},
		// An unknown route leaves all to the path.
		{"POST /login", "", "POST //login", "", true},
		{"POST /login", "", "GET /login", "", false},
		{"POST /login", "", "post /login", "", true},
		{"BREW /pot", "", "BREW /pot", "", true},
		// The host is the request's.
		{"h.com/x", "/x", "GET /x", "H.com.:80", true},
		{"h.com/x", "/x", "GET /x", "other.com", false},
		{"h.com/x", "", "GET /x", "h.com", true},
		{"h.com/x", "", "GET /y", "h.com", false},
	} {
		store, _ := newStore()
		l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "only", Key: key("k"), Limit: five, Routes: strings.Split(test.routes, ",")})
		method, path, _ := strings.Cut(test.request, " ")

		for i := range 2 {
			r := get("/")
			r.Method, r.Pattern, r.Host = method, test.route, test.host
			r.URL.Path = path
			if strings.HasPrefix(test.route, "/auth/") {
				r.RequestURI = "/auth" + path
			}
			if got := len(l.Decide(r).Results) > 0; got != test.want {
				t.Errorf("%q on %q, %s (%s), time %d: got %t; want %t", test.routes, test.route, test.request, test.host, i+1, got, test.want)
			}
		}

		// The same route, asked for something else.
		r := get("/unrelated")
		r.Method, r.Pattern, r.Host = http.MethodDelete, "/unrelated", "elsewhere"
		if len(l.Decide(r).Results) > 0 {
			t.Errorf("%q applies to an unrelated route", test.routes)
		}
	}
}

// A first request whose path was rewritten does not decide for others of its route.
func TestFirstRequestDecidesForNobody(t *testing.T) {
	served := 0
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()}, middleware.Policy{Name: "only", Key: key("k"), Limit: five, Routes: []string{"POST /login"}})
	mux := http.NewServeMux()
	mux.Handle("POST /auth/login", http.StripPrefix("/auth", limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))))

	for _, sent := range []string{"/auth/login/", "/AUTH/LOGIN", "/auth/login", "/auth/login", "/auth/login", "/auth/login", "/auth/login"} {
		r := httptest.NewRequest("POST", sent, nil)
		r.URL.Path = "/auth/login" // as chi's StripSlashes, or what makes paths lower case
		mux.ServeHTTP(httptest.NewRecorder(), r)
	}
	if served != 5 {
		t.Errorf("%d requests were served; want 5", served)
	}
}

func TestInventedMethodsFillNoMemory(t *testing.T) {
	measure := func(flood int) float64 {
		l := limiter(t, middleware.Config{Store: gcra.NewMemory()}, middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerSecond(1_000_000), Routes: []string{"/login"}})
		r := get("/login")
		r.Pattern = "/login"
		for i := range flood {
			odd := get("/login")
			odd.Pattern, odd.Method = "/login", "M"+strconv.Itoa(i)
			l.Decide(odd)
		}
		return testing.AllocsPerRun(100, func() { l.Decide(r) })
	}
	if before, after := measure(0), measure(5000); before != after {
		t.Errorf("got %v allocations a decision, %v after a flood; want the same: the route is still cached", before, after)
	}
}

// A mux strips brackets from a Host field. No spelling of the host escapes the
// policy of a route with a host.
func TestHostSpellings(t *testing.T) {
	l := limiter(t, middleware.Config{Store: gcra.NewMemory()},
		middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(1), Routes: []string{"POST example.com/login"}})
	mux := http.NewServeMux()
	mux.HandleFunc("POST example.com/login", func(http.ResponseWriter, *http.Request) {})
	served := 0

	for _, host := range []string{"example.com", "example.com:80", "[example.com]:80", "[example.com]:", "example.com:"} {
		r := httptest.NewRequest("POST", "/login", nil)
		r.Host = host
		_, r.Pattern = mux.Handler(r)
		if d := l.Decide(r); d.Allowed && r.Pattern != "" {
			served++
		}
	}

	if served != 1 {
		t.Errorf("%d spellings of the host were served; want 1", served)
	}
}
