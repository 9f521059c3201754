package ratelimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/chi"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

type use = func(http.Handler) http.Handler

// api registers the routes of the test below a router.
func api(r chi.Router) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Served-By", chi.RouteContext(r.Context()).RoutePattern())
	}

	r.Get("/", handler)
	r.Get("/users/{id}", handler)
	r.Post("/users/{id}", handler)
	r.Get("/users/me", handler)
	r.Get("/admin", handler) // as mounts below are named
	r.Get("/things/{id:[0-9]+}", handler)
	r.Get("/files/*", handler)
	r.Route("/deep", func(r chi.Router) {
		r.Get("/", handler)
		r.Get("/{a}/x", handler)
		r.Mount("/deeper", func() chi.Router {
			r := chi.NewRouter()
			r.Get("/{b}", handler)
			return r
		}())
	})
	r.Mount("/opaque", http.StripPrefix("/opaque", http.HandlerFunc(handler)))
}

// The limiter counts by the route that chi serves by, wherever it is mounted and
// however the path is spelled.
func TestRouteIsChis(t *testing.T) {
	under := func(prefix string, build func(r chi.Router, limit use)) func(use) (http.Handler, string) {
		return func(limit use) (http.Handler, string) {
			r := chi.NewRouter()
			build(r, limit)
			return r, prefix
		}
	}

	for where, build := range map[string]func(use) (http.Handler, string){
		"Use":    under("", func(r chi.Router, limit use) { r.Use(limit); api(r) }),
		"around": func(limit use) (http.Handler, string) { r := chi.NewRouter(); api(r); return limit(r), "" },
		"With":   under("", func(r chi.Router, limit use) { api(r.With(limit)) }),
		"With, twice": under("", func(r chi.Router, limit use) {
			api(r.With(ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()}, ratelimit.Policy{Name: "all", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)}), limit))
		}),
		"Group": under("", func(r chi.Router, limit use) { r.Group(func(r chi.Router) { r.Use(limit); api(r) }) }),
		"Use, StripSlashes and CleanPath in front": under("", func(r chi.Router, limit use) {
			r.Use(chimiddleware.CleanPath, chimiddleware.StripSlashes, limit)
			api(r)
		}),
		"Use, GetHead behind": under("", func(r chi.Router, limit use) { r.Use(limit, chimiddleware.GetHead); api(r) }),
		"Use of a subrouter": under("/admin", func(r chi.Router, limit use) {
			r.Route("/admin", func(r chi.Router) { r.Use(limit); api(r) })
		}),
		"Use of a subrouter, StripSlashes in front": under("/admin", func(r chi.Router, limit use) {
			r.Use(chimiddleware.StripSlashes)
			r.Route("/admin", func(r chi.Router) { r.Use(limit); api(r) })
		}),
		"Use of a subrouter in a subrouter": under("/{tenant}/admin", func(r chi.Router, limit use) {
			r.Route("/{tenant}", func(r chi.Router) {
				r.Route("/admin", func(r chi.Router) { r.Use(limit); api(r) })
			})
		}),
		"Use of a group, in front of a subrouter": under("/api/admin", func(r chi.Router, limit use) {
			r.Route("/api", func(r chi.Router) {
				r.Group(func(r chi.Router) { r.Use(limit); r.Route("/admin", api) })
			})
		}),
		"With and Mount": under("/admin", func(r chi.Router, limit use) {
			sub := chi.NewRouter()
			api(sub)
			r.With(limit).Mount("/admin", sub)
		}),
		"around a mounted router": under("/admin", func(r chi.Router, limit use) {
			sub := chi.NewRouter()
			api(sub)
			r.Mount("/admin", limit(sub))
		}),
		"around a router mounted in a subrouter": under("/{tenant}/admin", func(r chi.Router, limit use) {
			sub := chi.NewRouter()
			api(sub)
			r.Route("/{tenant}", func(r chi.Router) { r.Mount("/admin", limit(sub)) })
		}),
		"Use, behind a mux and a prefix": func(limit use) (http.Handler, string) {
			r := chi.NewRouter()
			r.Use(limit)
			api(r)
			mux := http.NewServeMux()
			mux.Handle("/", r)
			return mux, ""
		},
	} {
		t.Run(where, func(t *testing.T) {
			var counted []string
			h, prefix := build(ratelimit.New(ratelimit.Config{
				Store:   gcra.NewMemory(),
				Observe: func(_ *http.Request, d *ratelimit.Decision) { counted = append(counted, d.Results[0].Subject) },
			}, ratelimit.Policy{Name: "route", Key: keyfunc.Route, Limit: gcra.PerMinute(100)}))

			server := httptest.NewServer(h)
			defer server.Close()

			served := 0
			for _, request := range []string{
				"GET ", "GET /", "GET /admin", "GET /users/7", "POST /users/7", "GET /users/me", "GET /users/a%2Fb", "GET /users/%37",
				"GET /things/12", "GET /files/a/b", "GET /files/", "GET /deep", "GET /deep/", "GET /deep/1/x", "GET /deep/deeper/2",
				"GET /opaque/y", "GET /users/7/", "GET //users/7", "GET /x/../users/7", "HEAD /users/7",
				"PUT /users/7", "BREW /users/7", "GET /things/ab", "GET /nowhere", "GET /users/7/y", "GET /deep/nowhere", "GET /USERS/7",
			} {
				counted = nil
				method, path, _ := strings.Cut(request, " ")
				r, err := http.NewRequest(method, server.URL+strings.ReplaceAll(prefix, "{tenant}", "acme")+path, nil)
				if err != nil {
					t.Fatal(err)
				}

				resp, err := http.DefaultTransport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}

				resp.Body.Close()
				by := resp.Header.Get("X-Served-By")
				if by == "" { // no route serves it
					if where == "Use" && method != "HEAD" && (resp.StatusCode < 400 || len(counted) != 1 || counted[0] != "") {
						t.Errorf("%s: got %d, counted as %q; want no route", request, resp.StatusCode, counted)
					}
					continue
				}

				served++
				if by = strings.Replace(by, "/*", "/{path...}", 1); by == "/" {
					by = "/{$}"
				}
				want := "route:" + strings.Replace(method, "HEAD", "GET", 1) + " " + by
				if len(counted) != 1 || counted[0] != want {
					t.Errorf("%s: counted as %q; want %q, which served it", request, counted, want)
				}
			}

			if served < 12 {
				t.Errorf("%d requests were served; want most of them", served)
			}
		})
	}
}

// A client that rewrites the method after chi has found the route, or the router in which it looks
// for it, escapes no policy of the route.
func TestMethodOverride(t *testing.T) {
	override := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Method = r.Header.Get("X-HTTP-Method-Override")
			next.ServeHTTP(w, r)
		})
	}

	for where, mount := range map[string]func(r chi.Router, limit use, login http.HandlerFunc){
		"With": func(r chi.Router, limit use, login http.HandlerFunc) { r.With(override, limit).Post("/login", login) },
		"Group": func(r chi.Router, limit use, login http.HandlerFunc) {
			r.Group(func(r chi.Router) { r.Use(override, limit); r.Post("/login", login) })
		},
		"Use of a mounted router": func(r chi.Router, limit use, login http.HandlerFunc) {
			r.Route("/", func(r chi.Router) { r.Use(override, limit); r.Post("/login", login) })
		},
	} {
		served, keys := 0, map[string]bool{}
		limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
			ratelimit.Policy{Name: "login", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1), Routes: []string{"POST /login"}},
			ratelimit.Policy{Name: "by route", Limit: gcra.PerSecond(100), Key: func(r *http.Request) (string, error) {
				key, err := keyfunc.Route(r)
				keys[key] = true
				return key, err
			}})

		router := chi.NewRouter()
		mount(router, limit, func(http.ResponseWriter, *http.Request) { served++ })
		for _, method := range []string{"POST", "GET", "DELETE", "BREW"} {
			r := httptest.NewRequest("POST", "/login", nil)
			r.Header.Set("X-HTTP-Method-Override", method)
			router.ServeHTTP(httptest.NewRecorder(), r)
		}
		if served != 1 || len(keys) != 1 {
			t.Errorf("%s: got %d requests, routes %v; want 1, POST /login", where, served, keys)
		}
	}
}
