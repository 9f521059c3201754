package ratelimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	viachi "github.com/seed-e377111c/ratelimit/adapters/chi"
	viaechov4 "github.com/seed-e377111c/ratelimit/adapters/echo"
	viaecho "github.com/seed-e377111c/ratelimit/adapters/echov5"
	viagin "github.com/seed-e377111c/ratelimit/adapters/gin"
	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/inflight"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
)

// In every framework a request holds a slot of its route's limit until its handler is over or has given it back.
func TestInFlight(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for name, build := range map[string]func(*inflight.Gate, http.HandlerFunc) http.Handler{
		"net/http": func(gate *inflight.Gate, h http.HandlerFunc) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("GET /jobs/{id}", h)
			mux.Handle("GET /free", h)
			return vianethttp.InFlight(gate, nil)(mux)
		},
		"chi": func(gate *inflight.Gate, h http.HandlerFunc) http.Handler {
			router := chi.NewRouter()
			router.Use(viachi.InFlight(gate, nil))
			router.Get("/jobs/{id}", h)
			router.Get("/free", h)
			return router
		},
		"gin": func(gate *inflight.Gate, h http.HandlerFunc) http.Handler {
			router := gin.New()
			router.Use(viagin.InFlight(gate, nil))
			router.GET("/jobs/:id", gin.WrapF(h))
			router.GET("/free", gin.WrapF(h))
			return router
		},
		"echo v4": func(gate *inflight.Gate, h http.HandlerFunc) http.Handler {
			e := echov4.New()
			e.Use(viaechov4.InFlight(gate, nil))
			e.GET("/jobs/:id", echov4.WrapHandler(h))
			e.GET("/free", echov4.WrapHandler(h))
			return e
		},
		"echo v5": func(gate *inflight.Gate, h http.HandlerFunc) http.Handler {
			e := echo.New()
			e.Use(viaecho.InFlight(gate, nil))
			e.GET("/jobs/:id", echo.WrapHandler(h))
			e.GET("/free", echo.WrapHandler(h))
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := inflight.NewMemory(inflight.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close(context.Background()) })

			running, goOn, release := make(chan bool), make(chan bool), make(chan bool, 1)
			limit := inflight.Limit{Name: "jobs", Key: sitetest.Everybody, Max: 1, Routes: []string{"GET /jobs/{id}"}}
			gate, err := l.Gate(limit)
			if err != nil {
				t.Fatal(err)
			}
			server := build(gate, func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Has("slow") {
					running <- true
					if <-goOn {
						inflight.FromContext(r.Context()).Release()
						release <- true
						<-goOn
					}
				}
			})
			get := func(url string) int {
				w := httptest.NewRecorder()
				server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil))
				return w.Code
			}

			for _, early := range []bool{false, true} {
				over := make(chan int)
				go func() { over <- get("/jobs/1?slow") }()
				<-running
				expect(t, "while another runs", get("/jobs/2"), 429)
				expect(t, "a route without the limit", get("/free"), 200)
				goOn <- early
				if early {
					<-release
					expect(t, "after it has given its slot back", get("/jobs/2"), 200)
					goOn <- true
				}
				expect(t, "the first", <-over, 200)
				expect(t, "after it", get("/jobs/2"), 200)
			}
		})
	}
}
