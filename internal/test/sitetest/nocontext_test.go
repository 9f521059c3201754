package sitetest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	viaecho "github.com/seed-e377111c/ratelimit/adapters/echo"
	viagin "github.com/seed-e377111c/ratelimit/adapters/gin"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// pastFirst is more requests than are copied because they are a policy's first.
const pastFirst = 300

// stopped is a clock that stands still, so that two runs give the same answers.
func stopped() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// With Config.NoContext clients get the answers that they get without it, and
// handlers see the same pattern.
func TestNoContextSameAnswers(t *testing.T) {
	for _, f := range sitetest.Frameworks {
		t.Run(f.Name, func(t *testing.T) {
			var answers [2]string
			for i, noContext := range []bool{false, true} {
				l := middleware.Must(middleware.New(
					middleware.Config{Logger: slog.New(slog.DiscardHandler), Store: &gcra.Memory{Now: stopped}, NoContext: noContext, Headers: middleware.HeadersDraft6 | middleware.HeadersDraft11},
					middleware.Policy{Name: "all", Key: byName, Limit: gcra.PerHour(pastFirst + 20)},
					middleware.Policy{Name: "users", Key: keyfunc.Join(byName, keyfunc.Route), Limit: gcra.PerHour(pastFirst + 10), Routes: []string{"GET /users/{id}"}}))
				server := f.Build(sitetest.App{Outer: l, Inner: l, Behind: func() {}, Routes: map[string]http.HandlerFunc{
					"GET /users/{id}": func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Pattern) },
					"GET /ok":         func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Pattern) },
				}})
				for n := range pastFirst + 30 {
					r := httptest.NewRequest(http.MethodGet, "/users/7", nil)
					if n > pastFirst && n%2 == 0 {
						r = httptest.NewRequest(http.MethodGet, "/ok", nil)
					}
					r.Header.Set("X-Client", "alice")
					w := httptest.NewRecorder()
					server.ServeHTTP(w, r)
					answers[i] += fmt.Sprintln(w.Code, w.Header(), w.Body)
				}
			}
			expect(t, "answers with NoContext", answers[1], answers[0])
		})
	}
}

// KeyFrom finds the framework's context with Config.NoContext too.
func TestNoContextKeyFrom(t *testing.T) {
	cfg := middleware.Config{Store: &gcra.Memory{Now: stopped}, NoContext: true}
	policy := middleware.Policy{Name: "own", Limit: gcra.PerHour(pastFirst)}
	hello := func(http.ResponseWriter, *http.Request) {}

	policy.Key = viagin.KeyFrom(func(c *gin.Context) (string, error) { return c.GetHeader("X-Client"), nil })
	gin.SetMode(gin.ReleaseMode)
	inGin := gin.New()
	inGin.Use(viagin.New(cfg, policy))
	inGin.GET("/", gin.WrapF(hello))

	policy.Name = "own in echo"
	policy.Key = viaecho.KeyFrom(func(c echo.Context) (string, error) { return c.Request().Header.Get("X-Client"), nil })
	inEcho := echo.New()
	inEcho.Use(viaecho.New(cfg, policy))
	inEcho.GET("/", echo.WrapHandler(http.HandlerFunc(hello)))

	for name, server := range map[string]http.Handler{"gin": inGin, "echo": inEcho} {
		for n := range pastFirst + 1 {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("X-Client", "alice")
			w := httptest.NewRecorder()
			server.ServeHTTP(w, r)
			if want := map[bool]int{true: 200, false: 429}[n < pastFirst]; w.Code != want {
				t.Fatalf("%s: request %d of one client got %d; want %d", name, n+1, w.Code, want)
			}
		}
	}
}

// However a request ends, the next ones get decisions of their own: its handler panics
// or hijacks the connection, its client hangs up, or a goroutine outlives it.
func TestNoContextRequestsThatEndBadly(t *testing.T) {
	for _, f := range sitetest.Frameworks {
		t.Run(f.Name, func(t *testing.T) {
			var outliving sync.WaitGroup
			defer outliving.Wait()
			over := make(chan struct{})
			defer close(over)
			var entered, ended [8]chan struct{} // of a client's requests to /slow
			for i := range entered {
				entered[i], ended[i] = make(chan struct{}, 1), make(chan struct{}, 1)
			}
			number := func(r *http.Request) int { n, _ := strconv.Atoi(r.Header.Get("X-Client")); return n }
			const all = 1000
			l := middleware.Must(middleware.New(
				middleware.Config{Store: &gcra.Memory{Now: stopped}, NoContext: true, Logger: slog.New(slog.DiscardHandler)},
				middleware.Policy{Name: "all", Key: byName, Limit: gcra.PerHour(all)},
				middleware.Policy{Name: "slow", Limit: gcra.PerHour(1), MaxDelay: 24 * time.Hour, Routes: []string{"/slow"},
					Key: func(r *http.Request) (string, error) {
						entered[number(r)] <- struct{}{}
						return byName(r)
					}}))
			site := f.Build(sitetest.App{Outer: l, Inner: l, Behind: func() {}, Routes: map[string]http.HandlerFunc{
				"GET /ok":    func(http.ResponseWriter, *http.Request) {},
				"GET /slow":  func(http.ResponseWriter, *http.Request) {},
				"GET /panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
				"GET /hijack": func(w http.ResponseWriter, _ *http.Request) {
					conn, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						panic(err)
					}
					conn.Close()
				},
				"GET /outlive": func(_ http.ResponseWriter, r *http.Request) {
					outliving.Go(func() {
						<-over
						d := middleware.FromContext(r.Context())
						if err := errors.Join(d.Refund(r.Context()), d.Spend(r.Context(), 1)); d != nil || err != nil {
							t.Errorf("after the request: got Decision %v, error %v; want nil, nil", d, err)
						}
					})
				},
			}})
			for range pastFirst {
				r := httptest.NewRequest(http.MethodGet, "/ok", nil)
				r.Header.Set("X-Client", "warm")
				site.ServeHTTP(httptest.NewRecorder(), r)
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					defer func() { ended[number(r)] <- struct{}{} }()
				}
				site.ServeHTTP(w, r)
			}))
			defer server.Close()
			var clients sync.WaitGroup
			for i := range entered {
				clients.Go(func() {
					client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // it would send again what a panic ends
					for used := 0; used < 50; {
						for _, path := range []string{"/panic", "/hijack", "/outlive", "/slow", "/ok"} {
							ctx, hangUp := context.WithCancel(t.Context())
							defer hangUp()
							r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
							if err != nil {
								t.Error(err)
								return
							}
							r.Header.Set("X-Client", strconv.Itoa(i))
							var slow sync.WaitGroup
							if path == "/slow" {
								slow.Go(func() { <-entered[i]; hangUp(); <-ended[i] })
							}
							res, err := client.Do(r)
							slow.Wait()
							used++
							if err != nil {
								if path == "/ok" || path == "/outlive" {
									t.Errorf("%s: %v", path, err)
								}
								continue
							}
							res.Body.Close()
							if got, want := res.Header.Get("RateLimit-Remaining"), strconv.Itoa(all-used); path == "/ok" && got != want {
								t.Errorf("client %d: got %s remaining; want %s", i, got, want)
							}
						}
					}
				})
			}
			clients.Wait()
		})
	}
}
