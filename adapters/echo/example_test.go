package ratelimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	echojwt "github.com/labstack/echo-jwt/v4"
	"github.com/labstack/echo/v4"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/echo"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// get sends requests from one client and prints what comes back.
func get(h http.Handler, targets ...string) {
	for _, target := range targets {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		fmt.Println(target, w.Code, "remaining", w.Header().Get("RateLimit-Remaining"))
	}
}

func hello(c echo.Context) error { return c.String(http.StatusOK, "hello\n") }

func Example() {
	e := echo.New()
	e.Use(ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)},
		ratelimit.Policy{Name: "users", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(2), Routes: []string{"GET /users/:id"}},
	))
	e.GET("/hello", hello)
	e.GET("/users/:id", hello)
	get(e, "/hello", "/users/1", "/users/2", "/users/3")
	// Output:
	// /hello 200 remaining 99
	// /users/1 200 remaining 1
	// /users/2 200 remaining 0
	// /users/3 429 remaining 0
}

// echo-jwt leaves the verified token in echo's context, under "user". Put the
// limiter after it.
func ExampleKeyFrom() {
	secret := []byte("a secret that is long enough for HS256")
	user := ratelimit.KeyFrom(func(c echo.Context) (string, error) {
		token, ok := c.Get("user").(*jwt.Token)
		if !ok {
			return "", errors.New("no token: is echo-jwt in front?")
		}
		subject, err := token.Claims.GetSubject()
		if err == nil && subject == "" {
			err = errors.New("no subject: does the issuer set sub?")
		}
		return subject, err
	})
	e := echo.New()
	e.Use(
		echojwt.JWT(secret),
		ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()}, ratelimit.Policy{Name: "user", Key: user, Limit: gcra.PerMinute(1)}),
	)
	e.GET("/hello", hello)

	for _, subject := range []string{"alice", "alice", "bob"} {
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
			Subject: subject, ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
		}).SignedString(secret)
		if err != nil {
			fmt.Println(err)
		}
		r, w := httptest.NewRequest("GET", "/hello", nil), httptest.NewRecorder()
		r.Header.Set("Authorization", "Bearer "+token)
		e.ServeHTTP(w, r)
		fmt.Println(subject, w.Code)
	}
	// Output:
	// alice 200
	// alice 429
	// bob 200
}
