package sitetest_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	viaechov4 "github.com/seed-e377111c/ratelimit/adapters/echo"
	viaecho "github.com/seed-e377111c/ratelimit/adapters/echov5"
	viagin "github.com/seed-e377111c/ratelimit/adapters/gin"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/adapter"
)

// Keys of the framework's own context, in each framework that has one.
func TestKeyFrom(t *testing.T) {
	t.Run("gin", func(t *testing.T) {
		testKeyFrom(t, "*gin.Context", viagin.KeyFrom, func(l *middleware.Limiter) http.Handler {
			gin.SetMode(gin.ReleaseMode)
			router := gin.New()
			router.GET("/usage", func(c *gin.Context) {
				writeUsage(c.Writer, l.Peek(adapter.WithFramework(c.Request, c.Request.Pattern, c)))
			})
			router.Use(viagin.From(l))
			router.GET("/", func(*gin.Context) {})
			return router
		})
	})

	t.Run("echo v4", func(t *testing.T) {
		testKeyFrom(t, "echo.Context", viaechov4.KeyFrom, func(l *middleware.Limiter) http.Handler {
			e := echov4.New()
			e.GET("/", func(c echov4.Context) error { return c.NoContent(http.StatusOK) }, viaechov4.From(l))
			e.GET("/usage", func(c echov4.Context) error {
				writeUsage(c.Response(), l.Peek(adapter.WithFramework(c.Request(), c.Request().Pattern, c)))
				return nil
			})
			return e
		})
	})

	t.Run("echo v5", func(t *testing.T) {
		testKeyFrom(t, "*echo.Context", viaecho.KeyFrom, func(l *middleware.Limiter) http.Handler {
			e := echo.New()
			e.GET("/", func(c *echo.Context) error { return c.NoContent(http.StatusOK) }, viaecho.From(l))
			e.GET("/usage", func(c *echo.Context) error {
				writeUsage(c.Response(), l.Peek(adapter.WithFramework(c.Request(), c.Request().Pattern, c)))
				return nil
			})
			return e
		})
	})
}

// writeUsage writes what is left to the subject of the only policy.
func writeUsage(w http.ResponseWriter, d *middleware.Decision) {
	fmt.Fprint(w, d.Results[0].Subject, " ", d.Results[0].Remaining, " ", d.Err)
}

// testKeyFrom tests the KeyFrom of a framework, whose context is a C. An error of a request
// without one names it as missing, and says what to do. Its /usage peeks outside the limiter.
func testKeyFrom[C any](t *testing.T, missing string, keyFrom func(func(C) (string, error)) func(*http.Request) (string, error), build func(*middleware.Limiter) http.Handler) {
	failure := errors.New("no session")
	for _, test := range []struct {
		key     string
		err     error
		subject string
		wantErr error
		code    diag.Code // is logged within a hundred requests
	}{
		{"alice", nil, "own:alice", nil, ""},
		{"", nil, "", nil, diag.AnonymousOnly}, // an anonymous request stays anonymous
		{"", failure, "", failure, diag.PolicyFailed},
	} {
		var d *middleware.Decision
		log := new(diagtest.Log)
		key := keyFrom(func(C) (string, error) { return test.key, test.err })
		l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Logger: log.Logger(), Observe: func(_ *http.Request, seen *middleware.Decision) { d = seen }},
			middleware.Policy{Name: "all", Limit: gcra.PerMinute(1), Key: key}))

		site := build(l)
		for range 100 {
			site.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}
		expectLine(t, log, test.code)
		if got := d.Results[0].Subject; got != test.subject || !errors.Is(d.Err, test.wantErr) {
			t.Errorf("key %q, %v: got subject %q, error %v; want %q, %v", test.key, test.err, got, d.Err, test.subject, test.wantErr)
		}

		usage := httptest.NewRecorder()
		site.ServeHTTP(usage, httptest.NewRequest("GET", "/usage", nil))
		if want := test.subject + " 0 "; !strings.HasPrefix(usage.Body.String(), want) {
			t.Errorf("key %q, %v: got usage %q; want %q", test.key, test.err, usage.Body, want)
		}
	}

	elsewhere := keyFrom(func(C) (string, error) { return "x", nil })
	if _, err := elsewhere(httptest.NewRequest("GET", "/", nil)); err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "give Peek adapter.WithFramework[") {
		t.Errorf("outside the framework: got %v; want an error that says so", err)
	}
}
