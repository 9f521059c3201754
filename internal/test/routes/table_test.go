package routes

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// in returns a route of a ServeMux in another syntax.
func in(to syntax, written string) route {
	method, path, _ := strings.Cut(written, " ")
	path = strings.ReplaceAll(path, "{rest...}", to.rest)
	return route{method, regexp.MustCompile(`\{(\w+)\}`).ReplaceAllString(path, strings.ReplaceAll(to.param, "%s", "$1"))}
}

// The examples of docs/limits.md, in every framework.
func TestRoutes(t *testing.T) {
	for _, test := range []struct {
		policy, routes string
		charged        string // requests of which the policy is charged
		not            string // requests of which it is not, where the adapter knows the route
		unlike         string // requests of which it is not anywhere
		apart          bool   // "not" is logged
	}{
		{policy: "/api/", routes: "GET /api, GET /api/v1/{id}, GET /apis",
			charged: "/api, /api/v1/7, /api/v1/%37", unlike: "/apis"},
		{policy: "GET /", routes: "GET /users/{id}, POST /login",
			charged: "/users/7", unlike: "POST /login"},

		// A route of its own.
		{policy: "GET /users/{id}", routes: "GET /users/{id}, GET /users/search, POST /users/{id}", apart: true,
			charged: "//users/search, /users/7, /users/%37, HEAD /users/7", not: "/users/search", unlike: "POST /users/7"},
		{policy: "POST /auth/{action}", routes: "POST /auth/login", apart: true, not: "POST /auth/login"},
		{policy: "/{page}", routes: "GET /static/{rest...}", apart: true, not: "/static/a.css, /static/css/b.css"},

		// The same shape.
		{policy: "/users/{id}", routes: "GET /users/{slug}", charged: "/users/anna, /users/a%2Fb"},
		{policy: "/users/:id", routes: "GET /users/{slug}", charged: "/users/anna"},
		{policy: "/login", routes: "POST /login, POST /login/{id}", charged: "POST /login", unlike: "POST /login/7"},
		{policy: "/notes.api.v1.*", routes: "POST /notes.api.v1.*, POST /notes.api.v2.*",
			charged: "POST /notes.api.v1.User/Get, POST /notes.api.v1.User, POST /notes%2Eapi.v1.User/Get", unlike: "POST /notes.api.v2.User/Get"},
		{policy: "/notes.api.v1.*", routes: "POST /{service}/{method}", charged: "POST /notes.api.v1.User/Get", unlike: "POST /notes.api.v2.User/Get"},

		// A client, or a router behind, fills in what the policy has as text.
		{policy: "/users/me", routes: "GET /users/{id}", charged: "/users/me, /users/m%65, /users/ME", unlike: "/users/you"},
		{policy: "POST /api/v1/auth/signin", routes: "POST /api/v1/{rest...}",
			charged: "POST /api/v1/auth/signin, POST /api/v1/auth/sign%69n, POST /api/v1/auth//signin, POST /api/v1/x/../auth/signin", unlike: "POST /api/v1/auth/signout"},
		{policy: "/notes.api.v1.Auth/SignIn", routes: "POST /notes.api.v1.*", charged: "POST /notes.api.v1.Auth/SignIn, POST /notes.api.v1.Auth/Sign%49n", unlike: "POST /notes.api.v1.Auth/SignOut"},

		// Text in the policy outweighs a parameter: otherwise these would be let pass in silence.
		{policy: "POST /{version}/login", routes: "POST /v1/{rest...}", charged: "POST /v1/login", unlike: "POST /v1/logout"},
		{policy: "POST /{version}/login", routes: "POST /v1/{action}", charged: "POST /v1/login", unlike: "POST /v1/logout"},

		// There is no route.
		{policy: "/nowhere", routes: "GET /login", charged: "/nowhere, //nowhere, /nowher%65", unlike: "/else"},
	} {
		for _, k := range kits {
			if strings.Contains(test.routes, ".*") && !k.syntax.star {
				continue
			}

			t.Run(test.policy+" on "+test.routes+"/"+k.name, func(t *testing.T) {
				log, charged, reached := new(diagtest.Log), false, false
				l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Logger: log.Logger(),
					Observe: func(_ *http.Request, d *middleware.Decision) { charged, reached = len(d.Results) > 0, true },
				}, middleware.Policy{Name: "p", Key: sitetest.Everybody, Limit: gcra.PerSecond(1000), Routes: []string{test.policy}}))
				var routes []route
				for written := range strings.SplitSeq(test.routes, ", ") {
					routes = append(routes, in(k.syntax, written))
				}
				h := k.build(l, routes, func(int, func(string) string) {})

				ask := func(requests string, want bool) {
					for request := range strings.SplitSeq(requests, ", ") {
						if request == "" {
							continue
						}
						if !strings.Contains(request, " ") {
							request = "GET " + request
						}
						method, target, _ := strings.Cut(request, " ")
						w := httptest.NewRecorder()
						reached = false
						h.ServeHTTP(w, httptest.NewRequest(method, target, nil))

						switch {
						case w.Code == http.StatusNotFound && want && test.policy != "/nowhere": // not a route in this framework
						case reached && charged != want:
							t.Errorf("%s: got %t; want %t", request, charged, want)
						case !reached && w.Code < 300:
							t.Errorf("%s did not reach the limiter", request)
						}
					}
				}

				ask(test.charged, true)
				ask(test.unlike, false)
				ask(test.not, k.unknown)

				lines := log.Lines()
				if want := test.apart && !k.unknown; want != (len(lines) == 1) || want && (lines[0].Code() != diag.RouteApart || lines[0].Level != slog.LevelInfo) {
					t.Errorf("got lines %v; want one: %t", lines, want)
				}
			})
		}
	}
}

// A policy for one method of a route that takes every method is logged, once.
func TestEveryMethod(t *testing.T) {
	for _, test := range []struct{ policy, route, requests, logged string }{
		{"POST /login", "/login", "POST /login, PUT /login, BREW /login", "POST /login"},
		{"POST /login", "/login", "PUT /login", "POST /login"},
		{"GET /login", "/login", "HEAD /login", "GET /login"},
		{"POST /auth/login", "/auth/{action}", "PUT /auth/login", ""}, // others may serve the route too
		{"POST /login", "POST /login", "POST /login", ""},
		{"/login", "/login", "POST /login", ""},
		{"POST /login|/login", "/login", "POST /login", ""},
		{"POST /", "/login", "POST /login", ""},
		{"POST /login", "/", "POST /login", ""}, // a router may be behind it
		{"POST other.com/login", "/login", "POST /login", ""},
	} {
		log := new(diagtest.Log)
		l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Logger: log.Logger()},
			middleware.Policy{Name: "p", Key: sitetest.Everybody, Limit: gcra.PerSecond(1000), Routes: strings.Split(test.policy, "|")}))
		h := vianethttp.From(l)(mux([]route{{"", test.route}}, func(int, func(string) string) {}, func(h http.Handler) http.Handler { return h }))
		for range 2 {
			for request := range strings.SplitSeq(test.requests, ", ") {
				method, target, _ := strings.Cut(request, " ")
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, target, nil))
			}
		}

		got := ""
		for _, line := range log.Lines() {
			got += line.Attrs["pattern"]
			if line.Code() != diag.RouteApart || line.Attrs["route"] != test.route {
				t.Errorf("%+v: got %v", test, line)
			}
		}
		if got != test.logged {
			t.Errorf("%+v: got a line about %q", test, got)
		}
	}
}

// A policy without a host applies to the routes of all hosts, and one with a host to its own.
func TestHosts(t *testing.T) {
	for policy, want := range map[string][]string{
		"/login":                  {"example.com", "other.com"},
		"POST example.com/login":  {"example.com"},
		"POST example.com/{page}": {},
	} {
		var charged []string
		host := ""
		l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Logger: slog.New(slog.DiscardHandler),
			Observe: func(_ *http.Request, d *middleware.Decision) {
				if len(d.Results) > 0 {
					charged = append(charged, host)
				}
			}}, middleware.Policy{Name: "p", Key: sitetest.Everybody, Limit: gcra.PerSecond(1000), Routes: []string{policy}}))

		h := kits[0].build(l, []route{{"POST", "example.com/login"}, {"POST", "/login"}}, func(int, func(string) string) {})
		for _, host = range []string{"example.com", "other.com"} {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "http://"+host+"/login", nil))
		}
		if !slices.Equal(charged, want) {
			t.Errorf("%s: charged by %q; want %q", policy, charged, want)
		}
	}
}
