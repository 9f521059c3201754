package signin_test

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	ratelimitecho "github.com/seed-e377111c/ratelimit/adapters/echo"
	ratelimitgin "github.com/seed-e377111c/ratelimit/adapters/gin"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/signin"
)

type user struct{ Username, Password string }

// right is the application's own check.
func right(_ context.Context, in user) bool { return in == user{"alice", "wonderland"} }

// In Gin the handler stays as it is, and settles. The check goes on if the client hangs up.
func Example_gin() {
	guard, err := signin.New(middleware.Config{Store: gcra.NewMemory()}, signin.JSON("username"), keyfunc.RemoteAddr)
	if err != nil {
		panic(err)
	}
	router := gin.New()
	router.POST("/login", ratelimitgin.From(guard.Limiter()), func(c *gin.Context) {
		ctx, outcome := context.WithoutCancel(c.Request.Context()), signin.Wrong
		defer func() { guard.Settle(ctx, outcome) }()
		var in user
		if c.ShouldBindJSON(&in) != nil || !right(ctx, in) {
			c.AbortWithStatus(http.StatusUnauthorized)
			return
		}
		outcome = signin.Right
		c.String(http.StatusOK, "welcome\n")
	})
}

// In Echo the application's error handler writes the errors, also the denials.
func Example_echo() {
	deny := ratelimitecho.DenyFrom(func(_ echo.Context, d *middleware.Decision) error { return echo.NewHTTPError(d.Status()) })
	guard, err := signin.New(middleware.Config{Store: gcra.NewMemory(), Deny: deny}, signin.JSON("username"), keyfunc.RemoteAddr)
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.POST("/login", func(c echo.Context) error {
		ctx, outcome := context.WithoutCancel(c.Request().Context()), signin.Wrong
		defer func() { guard.Settle(ctx, outcome) }()
		var in user
		if err := c.Bind(&in); err != nil || !right(ctx, in) {
			return echo.ErrUnauthorized
		}
		outcome = signin.Right
		return c.String(http.StatusOK, "welcome\n")
	}, ratelimitecho.From(guard.Limiter()))
}

// Basic authentication sends the password with every request. Settle when it is checked, and not
// at the end of the answer.
func Example_everyRequest() {
	account := func(r *http.Request) (string, error) { name, _, _ := r.BasicAuth(); return name, nil }
	guard, err := signin.New(middleware.Config{Store: gcra.NewMemory()}, account, keyfunc.RemoteAddr)
	if err != nil {
		panic(err)
	}
	policies := guard.Limiter().Policies() // in the order of docs/login.md
	policies[0].Limit = gcra.PerMinute(1).WithBurst(50)
	policies[1].Limit = gcra.PerDay(50)
	policies[4].Limit = gcra.PerSecond(50)
	if err := guard.Limiter().Reload(policies...); err != nil {
		panic(err)
	}

	http.HandleFunc("/music", func(w http.ResponseWriter, r *http.Request) {
		r, ok := guard.Limiter().Allow(w, r)
		if !ok {
			return
		}
		name, password, sent := r.BasicAuth()
		if !sent || !right(r.Context(), user{name, password}) {
			guard.Settle(r.Context(), map[bool]signin.Outcome{true: signin.Wrong, false: signin.Failed}[sent])
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		guard.Settle(r.Context(), signin.Right)
		http.ServeFile(w, r, "song.mp3")
	})
}
