// Echo limits an API of echo: users by the subject of their token, all others
// by address, and logins more strictly.
//
//	go run ./examples/echo
//
// With REDIS_URL the limits are shared by all servers on that Redis.
//
// This is Echo v4. For v5 import github.com/labstack/echo/v5 and adapters/echov5; handlers then
// take an *echo.Context. The rest stays as it is.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"log"
	"net/http"
	"os"

	"github.com/golang-jwt/jwt/v5"
	"github.com/labstack/echo/v4"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/echo"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

func main() {
	var store gcra.Store = gcra.NewMemory()
	where := "in this process; REDIS_URL shares them between servers"
	if url := os.Getenv("REDIS_URL"); url != "" {
		redis, err := redisstore.Open(url, redisstore.Config{})
		if err != nil {
			log.Fatal(err)
		}
		store, where = redis, "in the Redis of REDIS_URL"
		if err := redis.Ping(context.Background()); err != nil {
			where = "in this process until Redis works: " + err.Error()
		}
	}
	log.Print("limits are kept ", where)
	log.Fatal(newRouter(store).Start("127.0.0.1:8080"))
}

func newRouter(store gcra.Store) *echo.Echo {
	client := keyfunc.RemoteAddr                                   // behind a proxy: keyfunc.TrustedProxies
	secret := []byte(cmp.Or(os.Getenv("JWT_SECRET"), rand.Text())) // without one no token verifies
	user := keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"})

	router := echo.New()
	router.Use(ratelimit.New(ratelimit.Config{Store: store},
		ratelimit.Policy{Name: "burst", Key: keyfunc.First(user, client), Limit: gcra.PerSecond(10)},
		ratelimit.Policy{Name: "daily", Key: user, SkipAnonymous: true, Limit: gcra.PerDay(10_000)},
		ratelimit.Policy{Name: "login", Key: client, Limit: gcra.PerMinute(5), Routes: []string{"POST /login"}},
	))
	router.GET("/hello", func(c echo.Context) error { return c.String(http.StatusOK, "hello\n") })
	router.POST("/login", func(c echo.Context) error { return c.String(http.StatusOK, "welcome\n") })
	return router
}
